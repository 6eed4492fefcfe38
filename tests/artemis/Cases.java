// Runs cases of queues, filters, bridges and duplicate IDs on real Artemis brokers, embedded, with their journal
// on disk. Arguments: a directory, then names of cases (none: all). A JSON line out for each case: {"case", "seen",
// "notes"}; "seen" is compared with this project (ours.py runs the same cases), "notes" is only shown.

import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.function.BiConsumer;
import java.util.function.BooleanSupplier;
import java.util.function.Consumer;
import java.util.stream.IntStream;

import org.apache.activemq.artemis.api.core.ActiveMQException;
import org.apache.activemq.artemis.api.core.QueueConfiguration;
import org.apache.activemq.artemis.api.core.RoutingType;
import org.apache.activemq.artemis.api.core.SimpleString;
import org.apache.activemq.artemis.api.core.client.ActiveMQClient;
import org.apache.activemq.artemis.api.core.client.ClientConsumer;
import org.apache.activemq.artemis.api.core.client.ClientMessage;
import org.apache.activemq.artemis.api.core.client.ClientProducer;
import org.apache.activemq.artemis.api.core.client.ClientSession;
import org.apache.activemq.artemis.api.core.client.ClientSessionFactory;
import org.apache.activemq.artemis.api.core.client.ServerLocator;
import org.apache.activemq.artemis.core.config.BridgeConfiguration;
import org.apache.activemq.artemis.core.config.Configuration;
import org.apache.activemq.artemis.core.config.impl.ConfigurationImpl;
import org.apache.activemq.artemis.core.server.ActiveMQServer;
import org.apache.activemq.artemis.core.server.ActiveMQServers;
import org.apache.activemq.artemis.core.server.JournalType;
import org.apache.activemq.artemis.core.server.Queue;
import org.apache.activemq.artemis.core.server.cluster.Bridge;

public class Cases {

   static final long PATIENCE_MS = 30_000;
   static final int PARALLEL = 16;
   static final int ROUNDS = 30;

   interface Case {
      void run(Path directory, Result result) throws Exception;
   }

   static final Map<String, Case> CASES = new LinkedHashMap<>();

   static {
      CASES.put("fqqn-bridge", Cases::fqqnBridge);
      CASES.put("anycast-turns", Cases::anycastTurns);
      CASES.put("filtered-queue", Cases::filteredQueue);
      CASES.put("filtered-bridge", Cases::filteredBridge);
      CASES.put("ids-as-properties", Cases::idsAsProperties);
      CASES.put("parallel-ids", Cases::parallelIds);
      CASES.put("queue-later", Cases::queueLater);
      CASES.put("anycast-queue-later", Cases::anycastQueueLater);
      CASES.put("deleted-queue", Cases::deletedQueue);
      CASES.put("deleted-queue-of-bridge", Cases::deletedQueueOfBridge);
      CASES.put("auto-delete", Cases::autoDelete);
      CASES.put("auto-delete-conditions", Cases::autoDeleteConditions);
   }

   public static void main(String[] arguments) {
      Program.run(arguments, CASES.keySet(), (name, directory, result) ->
         CASES.get(name).run(Files.createDirectories(directory), result));
   }

   // ------------------------------------------------------------------------------------------------ the cases

   static void fqqnBridge(Path directory, Result result) throws Exception {
      try (Broker b = new Broker(directory, 1); Broker a = new Broker(directory, 0)) {
         b.queue("in", "in", RoutingType.ANYCAST);
         a.queue("news", "sub1", RoutingType.MULTICAST);
         a.queue("news", "sub2", RoutingType.MULTICAST);
         a.bridge("own", "news::sub1", null);
         a.send("news", 0, 10);
         b.await("in", 10);
         result.seen("news::sub1 arrived", b.read("in"));
         a.restart();
         a.send("news", 10, 15);
         b.await("in", 5);
         result.seen("news::sub1 arrived after a restart", b.read("in"));
         result.seen("left in sub2", a.count("sub2"));

         a.server.getClusterManager().destroyBridge("own");
         a.bridges.clear();
         a.bridge("wrong", "wrong::sub1", null);
         a.send("news", 15, 19);
         b.await("in", 4);
         result.seen("wrong::sub1 arrived", b.read("in"));
         result.seen("left in sub1", a.count("sub1"));

         a.bridge("later", "news::later", null);
         a.queue("news", "later", RoutingType.MULTICAST);
         a.send("news", 19, 22);
         await("wrong::sub1 has them", () -> b.count("in") >= 3);
         b.read("in");
         Queue later = a.server.locateQueue("later");
         boolean deployed = a.server.getClusterManager().getBridges().containsKey("later");
         result.note("bridge of news::later deployed", deployed);
         result.note("readers of news::later", later.getConsumerCount());
         result.seen("news::later, made later, arrived", b.read("in"));
         result.seen("left in later", a.count("later"));
      }
   }

   static void anycastTurns(Path directory, Result result) throws Exception {
      try (Broker b = new Broker(directory, 1); Broker a = new Broker(directory, 0)) {
         b.queue("in", "in", RoutingType.ANYCAST);
         a.queue("orders", "orders", RoutingType.ANYCAST);
         a.bridge("bridge", "orders", null);
         List<List<Integer>> shares = List.of(share(), share(), share());
         for (int round = 0; round < 2; round++) {
            int upto = (round + 1) * 150;
            List<Client> readers = new ArrayList<>();
            for (List<Integer> share : shares) {
               Client reader = new Client(a);
               readers.add(reader);
               reader.listen("orders", share);
            }
            await("four readers", () -> a.server.locateQueue("orders").getConsumerCount() == 4);
            a.send("orders", upto - 150, upto);
            await("all are taken", () -> shares.stream().mapToInt(List::size).sum() + b.count("in") >= upto
               && a.count("orders") == 0);
            for (Client reader : readers) {
               reader.close();
            }
            a.restart();
         }
         List<Integer> arrived = b.read("in");
         List<Integer> all = new ArrayList<>(arrived);
         shares.forEach(all::addAll);
         Collections.sort(all);
         result.seen("each message once", all.equals(numbers(0, 300)));
         result.seen("the bridge's share ascends at the target", ascends(arrived));
         result.seen("each reader's share ascends", shares.stream().allMatch(Cases::ascends));
         result.seen("each got more than half of a quarter",
            arrived.size() > 300 / 8 && shares.stream().allMatch(share -> share.size() > 300 / 8));
         result.seen("left", a.count("orders"));
         result.note("three readers' shares", shares.stream().map(List::size).toList());
         result.note("the bridge's share", arrived.size());
      }
   }

   static void filteredQueue(Path directory, Result result) throws Exception {
      try (Broker a = new Broker(directory, 0)) {
         a.queue("paint", "filtered", RoutingType.MULTICAST, queue -> queue.setFilterString("color = 'red'"));
         a.queue("paint", "all", RoutingType.MULTICAST);
         a.sendColoured("paint", 0, 10);
         a.restart();
         a.server.updateQueue(QueueConfiguration.of("filtered").setAddress("paint")
            .setRoutingType(RoutingType.MULTICAST).setFilterString("color = 'blue'"));
         a.sendColoured("paint", 10, 14);
         a.restart();
         result.seen("stored as red, arrived as blue", a.read("filtered"));
         a.sendColoured("paint", 14, 16);
         result.seen("arrived after a restart", a.read("filtered"));
         result.seen("unfiltered", a.read("all"));

         a.queue("narrow", "narrow", RoutingType.MULTICAST, queue -> queue.setFilterString("color = 'blue'"));
         Consumer<ClientMessage> redWithId = message -> {
            message.putStringProperty("color", "red");
            message.putStringProperty("_AMQ_DUPL_ID", "k");
         };
         a.restart();
         a.verdict("narrow", "narrow", redWithId);
         result.seen("messages that no filter takes, stored", a.count("narrow"));
         a.server.updateQueue(QueueConfiguration.of("narrow").setAddress("narrow")
            .setRoutingType(RoutingType.MULTICAST).setFilterString("color = 'red'"));
         result.seen("its ID again, when a filter takes it", a.verdict("narrow", "narrow", redWithId));
      }
   }

   static void filteredBridge(Path directory, Result result) throws Exception {
      try (Broker b = new Broker(directory, 1); Broker a = new Broker(directory, 0)) {
         b.queue("in", "in", RoutingType.ANYCAST);
         a.queue("paint", "shared", RoutingType.MULTICAST);
         a.bridge("reds", "paint::shared", "color = 'red'");
         a.sendColoured("paint", 0, 10);
         b.await("in", 5);
         a.restart();
         a.sendColoured("paint", 10, 20);
         b.await("in", 10);
         result.seen("arrived", b.read("in"));
         result.seen("the reader got", a.read("shared"));
         result.seen("left", a.count("shared"));
      }
   }

   static void idsAsProperties(Path directory, Result result) throws Exception {
      try (Broker a = new Broker(directory, 0)) {
         a.queue("orders", "orders", RoutingType.MULTICAST);
         Map<String, Consumer<ClientMessage>> kinds = new LinkedHashMap<>();
         kinds.put("_AMQ_DUPL_ID", message -> message.putStringProperty("_AMQ_DUPL_ID", "k1"));
         kinds.put("_HQ_DUPL_ID", message -> message.putStringProperty("_HQ_DUPL_ID", "k2"));
         kinds.put("both, different", message -> {
            message.putStringProperty("_AMQ_DUPL_ID", "k3");
            message.putStringProperty("_HQ_DUPL_ID", "k4");
         });
         kinds.put("UTF-8 bytes of the known text", message ->
            message.putBytesProperty("_AMQ_DUPL_ID", "k1".getBytes(StandardCharsets.UTF_8)));
         Map<String, List<String>> verdicts = new LinkedHashMap<>();
         for (int time = 0; time < 3; time++) {
            if (time == 2) {
               a.restart();
            }
            for (Map.Entry<String, Consumer<ClientMessage>> kind : kinds.entrySet()) {
               verdicts.computeIfAbsent(kind.getKey(), name -> new ArrayList<>())
                  .add(a.verdict("orders", "orders", kind.getValue()));
            }
         }
         verdicts.forEach(result::seen);
         result.seen("stored", a.count("orders"));
      }
   }

   static void parallelIds(Path directory, Result result) throws Exception {
      ExecutorService threads = Executors.newFixedThreadPool(PARALLEL);
      List<Client> clients = new ArrayList<>();
      try (Broker a = new Broker(directory, 0)) {
         a.queue("orders", "orders", RoutingType.MULTICAST);
         for (int number = 0; number < PARALLEL; number++) {
            clients.add(new Client(a));
         }
         CyclicBarrier barrier = new CyclicBarrier(PARALLEL);
         int more = 0;
         for (int round = 0; round < ROUNDS; round++) {
            String id = "round-" + round;
            long before = a.count("orders");
            List<Callable<Void>> sends = new ArrayList<>();
            for (Client client : clients) {
               sends.add(() -> {
                  barrier.await();
                  client.send("orders", 0, message -> message.putStringProperty("_AMQ_DUPL_ID", id));
                  return null;
               });
            }
            for (Future<Void> sent : threads.invokeAll(sends)) {
               sent.get();
            }
            more += a.count("orders") - before > 1 ? 1 : 0;
         }
         result.seen("each ID once", more == 0);
         result.note("rounds", ROUNDS);
         result.note("rounds with more than one", more);
         result.note("stored", a.count("orders"));
         for (Client client : clients) {
            client.close();
         }
         a.restart();
         result.seen("the last ID again after a restart", a.verdict("orders", "orders",
            message -> message.putStringProperty("_AMQ_DUPL_ID", "round-" + (ROUNDS - 1))));
      } finally {
         threads.shutdown();
      }
   }

   static void queueLater(Path directory, Result result) throws Exception {
      try (Broker a = new Broker(directory, 0)) {
         a.queue("news", "first", RoutingType.MULTICAST);
         a.send("news", 0, 5);
         a.queue("news", "later", RoutingType.MULTICAST);
         a.queue("news", "by-default", RoutingType.MULTICAST);
         a.restart();
         a.send("news", 5, 10);
         result.seen("first", a.read("first"));
         result.seen("made later, from what follows", a.read("later"));
         result.seen("made later, by default", a.read("by-default"));
      }
   }

   static void anycastQueueLater(Path directory, Result result) throws Exception {
      try (Broker a = new Broker(directory, 0)) {
         a.queue("orders", "orders", RoutingType.ANYCAST);
         a.send("orders", 0, 4);
         a.queue("orders", "second", RoutingType.ANYCAST);
         a.restart();
         a.send("orders", 4, 10);
         result.seen("second queue", "taken");
         result.seen("in the first queue", a.count("orders"));
         result.seen("in the second queue", a.count("second"));
      }
   }

   static void deletedQueue(Path directory, Result result) throws Exception {
      try (Broker a = new Broker(directory, 0)) {
         Consumer<ClientMessage> withId = message -> message.putStringProperty("_AMQ_DUPL_ID", "k");
         a.queue("news", "gone", RoutingType.MULTICAST);
         a.queue("news", "kept", RoutingType.MULTICAST);
         a.send("news", 0, 3);
         a.verdict("news", "kept", withId);
         result.seen("deleted while messages wait", a.delete("gone", result));
         a.restart();
         result.seen("the other queue has", a.count("kept"));
         result.seen("ID after one of two was deleted", a.verdict("news", "kept", withId));
         a.queue("news", "gone", RoutingType.MULTICAST);
         result.seen("made again, it has", a.count("gone"));
         a.delete("gone", result);
         a.delete("kept", result);
         a.restart();
         a.queue("news", "kept", RoutingType.MULTICAST);
         result.seen("ID after the last was deleted", a.verdict("news", "kept", withId));
      }
   }

   static void deletedQueueOfBridge(Path directory, Result result) throws Exception {
      try (Broker b = new Broker(directory, 1); Broker a = new Broker(directory, 0)) {
         b.queue("in", "in", RoutingType.ANYCAST);
         a.queue("news", "sub1", RoutingType.MULTICAST);
         a.bridge("bridge", "news::sub1", null);
         result.seen("deleted", a.delete("sub1", result));
         a.restart();
         a.send("news", 0, 3);
         b.await("in", 3);
         result.seen("arrived", b.read("in"));
      }
   }

   static void autoDelete(Path directory, Result result) throws Exception {
      try (Broker a = new Broker(directory, 0)) {
         Consumer<ClientMessage> toOne = message -> {
            message.setRoutingType(RoutingType.ANYCAST);
            message.putStringProperty("_AMQ_DUPL_ID", "k");
         };
         result.seen("sent to an unknown address", a.verdict("auto", "auto", toOne));
         a.restart();
         result.seen("the queue with a message, after a restart", a.count("auto") == 1 ? "there" : "gone");
         result.seen("its reader got", a.read("auto").size());
         await("the queue goes", () -> a.server.locateQueue("auto") == null);
         result.seen("the queue when its reader has left", "gone");
         await("the address goes", () -> a.server.getAddressInfo(SimpleString.of("auto")) == null);
         a.restart();
         boolean there = a.server.getAddressInfo(SimpleString.of("auto")) != null;
         result.seen("the address then, after a restart", there ? "there" : "gone");
         result.seen("its ID again", a.verdict("auto", "auto", toOne));
      }
   }

   static void autoDeleteConditions(Path directory, Result result) throws Exception {
      Consumer<QueueConfiguration> automatic = queue -> queue.setAutoCreated(true).setAutoDelete(true)
         .setAutoDeleteDelay(0L).setAutoDeleteMessageCount(0L);
      BiConsumer<Integer, ClientMessage> withId = (number, message) ->
         message.putStringProperty("_AMQ_DUPL_ID", "k" + number);
      try (Broker a = new Broker(directory, 0)) {
         a.queue("news", "kept", RoutingType.MULTICAST);
         a.queue("news", "sub", RoutingType.MULTICAST, automatic);
         a.send("news", 0, 3, withId);
         result.seen("its reader got", a.read("sub"));
         await("the queue goes", () -> a.server.locateQueue("sub") == null);
         result.seen("the other queue has", a.count("kept"));
         result.seen("an ID, while the other is there", a.verdict("news", "kept", m -> withId.accept(0, m)));
         a.send("news", 3, 5);
         a.restart();
         a.queue("news", "sub", RoutingType.MULTICAST, automatic);
         a.send("news", 5, 6);
         result.seen("its reader comes back later and gets", a.read("sub"));
         result.seen("the reader of the other got", a.read("kept"));
         a.looked("first", automatic);
         result.seen("the other, made by an administrator", a.there("kept"));

         a.queue("few", "few", RoutingType.MULTICAST, queue -> {
            automatic.accept(queue);
            queue.setAutoDeleteMessageCount(2L);
         });
         a.send("few", 0, 4);
         result.seen("of four, one reader got", a.read("few", 1));
         a.looked("second", automatic);
         result.seen("with more messages than the count", a.there("few"));
         result.seen("another reader got", a.read("few", 1));
         await("the queue goes", () -> a.server.locateQueue("few") == null);
         result.seen("with as many", a.there("few"));
         a.queue("few", "few", RoutingType.MULTICAST, automatic);
         result.seen("made again, it has", a.count("few"));
      }
   }

   // ------------------------------------------------------------------------------------------- brokers, clients

   static final class Broker implements AutoCloseable {
      final int number;
      final Configuration configuration;
      final List<BridgeConfiguration> bridges = new ArrayList<>();
      ActiveMQServer server;

      Broker(Path directory, int number) throws Exception {
         this.number = number;
         String data = directory.resolve("broker-" + number).toString();
         configuration = new ConfigurationImpl().setName("broker-" + number).setSecurityEnabled(false)
            .setJMXManagementEnabled(false).setPersistenceEnabled(true).setJournalType(JournalType.NIO)
            .setJournalDirectory(data + "/journal").setBindingsDirectory(data + "/bindings")
            .setPagingDirectory(data + "/paging").setLargeMessagesDirectory(data + "/large")
            .setAddressQueueScanPeriod(200)
            .addAcceptorConfiguration("in-vm", "vm://" + number).addConnectorConfiguration("target", "vm://1");
         start();
      }

      void start() throws Exception {
         configuration.setBridgeConfigurations(new ArrayList<>(bridges));
         server = ActiveMQServers.newActiveMQServer(configuration, true);
         server.start();
      }

      void restart() throws Exception {
         server.stop();
         start();
      }

      @Override
      public void close() throws Exception {
         server.stop();
      }

      void queue(String address, String name, RoutingType type) throws Exception {
         queue(address, name, type, queue -> { });
      }

      void queue(String address, String name, RoutingType type, Consumer<QueueConfiguration> more)
            throws Exception {
         QueueConfiguration queue = QueueConfiguration.of(name).setAddress(address).setRoutingType(type);
         more.accept(queue);
         server.createQueue(queue);
      }

      void bridge(String name, String queueName, String filter) throws Exception {
         BridgeConfiguration bridge = new BridgeConfiguration().setName(name).setQueueName(queueName)
            .setForwardingAddress("in").setStaticConnectors(List.of("target")).setRetryInterval(200)
            .setFilterString(filter);
         bridges.add(bridge);
         server.deployBridge(bridge);
         Bridge deployed = server.getClusterManager().getBridges().get(name);
         if (deployed != null) {
            Cases.await(name + " is connected", deployed::isConnected);
            // It reads only after that: until then its queue can be deleted.
            String queue = queueName.substring(queueName.lastIndexOf(':') + 1);
            Cases.await(name + " reads", () -> server.locateQueue(queue).getConsumerCount() > 0);
         }
      }

      void send(String address, int from, int upto) throws Exception {
         send(address, from, upto, (number, message) -> { });
      }

      /** Even numbers are red, odd ones blue. */
      void sendColoured(String address, int from, int upto) throws Exception {
         send(address, from, upto, (number, message) ->
            message.putStringProperty("color", number % 2 == 0 ? "red" : "blue"));
      }

      void send(String address, int from, int upto, BiConsumer<Integer, ClientMessage> more)
            throws Exception {
         try (Client client = new Client(this)) {
            for (int number = from; number < upto; number++) {
               int sent = number;
               client.send(address, number, message -> more.accept(sent, message));
            }
         }
      }

      /** What became of one message: Artemis does not say, but its queue has one more or not. */
      String verdict(String address, String queue, Consumer<ClientMessage> more) throws Exception {
         long before = count(queue);
         try (Client client = new Client(this)) {
            client.send(address, 0, more);
         } catch (ActiveMQException refused) {
            return "refused";
         }
         return count(queue) > before ? "stored" : "duplicate";
      }

      String delete(String queue, Result result) throws Exception {
         try (Client client = new Client(this)) {
            client.session.deleteQueue(queue);
            return "deleted";
         } catch (ActiveMQException refused) {
            result.note("refused with", refused.getMessage());
            return "refused";
         }
      }

      long count(String queue) {
         Queue found = server.locateQueue(queue);
         return found == null ? 0 : found.getMessageCount();
      }

      String there(String queue) {
         return server.locateQueue(queue) == null ? "gone" : "there";
      }

      /** Whatever may go by now has gone: a queue that may go is made, read and gone. */
      void looked(String queue, Consumer<QueueConfiguration> automatic) throws Exception {
         queue(queue, queue, RoutingType.MULTICAST, automatic);
         read(queue);
         Cases.await(queue + " goes", () -> server.locateQueue(queue) == null);
      }

      void await(String queue, int number) throws Exception {
         Cases.await(number + " messages in " + queue, () -> count(queue) >= number);
      }

      /** All that wait in a queue, acknowledged. */
      List<Integer> read(String queue) throws Exception {
         return read(queue, Integer.MAX_VALUE);
      }

      List<Integer> read(String queue, int most) throws Exception {
         List<Integer> read = new ArrayList<>();
         try (Client client = new Client(this); ClientConsumer consumer = client.session.createConsumer(queue)) {
            while (read.size() < most) {
               ClientMessage got = consumer.receiveImmediate();
               if (got == null) {
                  break;
               }
               read.add(got.getIntProperty("n"));
               got.acknowledge();
            }
         }
         return read;
      }
   }

   static final class Client implements AutoCloseable {
      final ServerLocator locator;
      final ClientSessionFactory factory;
      final ClientSession session;
      final ClientProducer producer;

      Client(Broker broker) throws Exception {
         locator = ActiveMQClient.createServerLocator("vm://" + broker.number).setAckBatchSize(0);
         factory = locator.createSessionFactory();
         session = factory.createSession(true, true, 0);
         producer = session.createProducer();
         session.start();
      }

      void send(String address, int number, Consumer<ClientMessage> more) throws ActiveMQException {
         ClientMessage message = session.createMessage(true).putIntProperty("n", number);
         more.accept(message);
         producer.send(address, message);
      }

      /** Acknowledges whatever comes, and adds its number to the list. */
      void listen(String queue, List<Integer> numbers) throws ActiveMQException {
         session.createConsumer(queue).setMessageHandler(message -> {
            try {
               message.acknowledge();
               numbers.add(message.getIntProperty("n"));
            } catch (ActiveMQException error) {
               throw new IllegalStateException(error);
            }
         });
      }

      @Override
      public void close() throws ActiveMQException {
         session.close();
         factory.close();
         locator.close();
      }
   }

   // --------------------------------------------------------------------------------------------------- helpers

   static void await(String what, BooleanSupplier holds) throws InterruptedException {
      long deadline = System.nanoTime() + PATIENCE_MS * 1_000_000;
      while (!holds.getAsBoolean()) {
         if (System.nanoTime() > deadline) {
            throw new IllegalStateException("not within " + PATIENCE_MS + " ms: " + what);
         }
         Thread.sleep(10);
      }
   }

   static List<Integer> share() {
      return Collections.synchronizedList(new ArrayList<>());
   }

   static List<Integer> numbers(int from, int upto) {
      return IntStream.range(from, upto).boxed().toList();
   }

   static boolean ascends(List<Integer> numbers) {
      return IntStream.range(1, numbers.size()).allMatch(place -> numbers.get(place - 1) < numbers.get(place));
   }
}
