// Runs originals/edge.xml and originals/hub.xml on real Artemis brokers, and sends to them. Arguments and output as of
// Cases.java; migrated.py runs the same cases on nodes with what core-bridge migrate makes of the two files.

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.BiConsumer;
import java.util.function.Consumer;

import org.apache.activemq.artemis.api.core.ActiveMQException;
import org.apache.activemq.artemis.api.core.RoutingType;
import org.apache.activemq.artemis.api.core.SimpleString;
import org.apache.activemq.artemis.api.core.client.ActiveMQClient;
import org.apache.activemq.artemis.api.core.client.ClientConsumer;
import org.apache.activemq.artemis.api.core.client.ClientMessage;
import org.apache.activemq.artemis.api.core.client.ClientSession;
import org.apache.activemq.artemis.api.core.client.ClientSessionFactory;
import org.apache.activemq.artemis.api.core.client.ServerLocator;
import org.apache.activemq.artemis.core.config.FileDeploymentManager;
import org.apache.activemq.artemis.core.config.impl.FileConfiguration;
import org.apache.activemq.artemis.core.server.ActiveMQServer;
import org.apache.activemq.artemis.core.server.ActiveMQServers;
import org.apache.activemq.artemis.core.server.Queue;

public class MigratedCases {

   static final int LARGEST = 200;

   interface Case {
      void run(Broker edge, Broker hub, Result result) throws Exception;
   }

   static final Map<String, Case> CASES = new LinkedHashMap<>();

   static {
      CASES.put("migrated-filter-and-transformer", MigratedCases::filterAndTransformer);
      CASES.put("migrated-plain-bridge", MigratedCases::plainBridge);
      CASES.put("migrated-late-hub", MigratedCases::lateHub);
      CASES.put("migrated-ids", MigratedCases::ids);
      CASES.put("migrated-full-address", MigratedCases::fullAddress);
      CASES.put("migrated-closed-address", MigratedCases::closedAddress);
      CASES.put("migrated-filtered-queue", MigratedCases::filteredQueue);
      CASES.put("migrated-divert", MigratedCases::divert);
   }

   /** The first argument is a directory; the files are where the system property `originals` says. */
   public static void main(String[] arguments) {
      Program.run(arguments, CASES.keySet(), MigratedCases::run);
   }

   static void run(String name, Path directory, Result result) throws Exception {
      int[] ports = ClusterCases.freePorts(2);
      System.setProperty("data", Files.createDirectories(directory).toString());
      System.setProperty("hub.port", String.valueOf(ports[0]));
      System.setProperty("edge.port", String.valueOf(ports[1]));
      try (Broker hub = new Broker("hub"); Broker edge = new Broker("edge")) {
         if (!name.equals("migrated-late-hub")) {
            hub.start();
         }
         edge.start();
         CASES.get(name).run(edge, hub, result);
      }
   }

   // ------------------------------------------------------------------------------------------------ the cases

   static void filterAndTransformer(Broker edge, Broker hub, Result result) throws Exception {
      edge.send("animals", 0, 20, MigratedCases::animal);
      hub.await("goats", 8);
      List<String> marks = new ArrayList<>();
      result.seen("goats of at most 6 years arrived", hub.read("goats", marks));
      result.seen("with the transformer's mark", marks);
      result.seen("the other queue has", edge.count("animals.all"));
      result.seen("the others' mark", edge.marks("animals.all"));
      edge.restart();
      edge.send("animals", 20, 26, MigratedCases::animal);
      hub.await("goats", 3);
      result.seen("arrived after a restart", hub.read("goats", new ArrayList<>()));
   }

   static void plainBridge(Broker edge, Broker hub, Result result) throws Exception {
      edge.send("orders", 0, 10, (number, message) -> { });
      hub.await("orders", 10);
      result.seen("arrived under its own name", hub.read("orders", new ArrayList<>()));
      Cases.await("all are settled", () -> edge.count("orders") == 0);
      result.seen("left", edge.count("orders"));
   }

   static void lateHub(Broker edge, Broker hub, Result result) throws Exception {
      edge.send("orders", 0, 10, (number, message) -> { });
      edge.send("animals", 0, 4, MigratedCases::animal);
      result.seen("orders wait", edge.count("orders"));
      hub.start();
      hub.await("orders", 10);
      hub.await("goats", 2);
      result.seen("orders arrived", hub.read("orders", new ArrayList<>()));
      result.seen("goats arrived", hub.read("goats", new ArrayList<>()));
   }

   static void ids(Broker edge, Broker hub, Result result) throws Exception {
      List<String> verdicts = new ArrayList<>();
      for (String id : List.of("a", "b", "a", "c", "a", "c", "b")) {
         verdicts.add(edge.verdict("ids", "ids", 10, message -> message.putStringProperty("_AMQ_DUPL_ID", id)));
      }
      result.seen("a b a c a c b, a cache of 2", verdicts);
      edge.restart();
      result.seen("b after a restart",
         edge.verdict("ids", "ids", 10, message -> message.putStringProperty("_AMQ_DUPL_ID", "b")));
   }

   static void fullAddress(Broker edge, Broker hub, Result result) throws Exception {
      int taken = 0;
      while (taken < LARGEST && edge.verdict("small.one", "small.one", 4000, message -> { }).equals("stored")) {
         taken++;
      }
      result.seen("is full at last", taken < LARGEST);
      result.note("messages of 4,000 bytes taken", taken);
      result.seen("kept", edge.count("small.one") == taken);
      result.seen("another address takes", edge.verdict("ids", "ids", 4000, message -> { }));
      edge.read("small.one", new ArrayList<>());
      result.seen("takes again when it was read", edge.verdict("small.one", "small.one", 4000, message -> { }));
   }

   static void closedAddress(Broker edge, Broker hub, Result result) throws Exception {
      result.seen("an address that is not made by sending", edge.taken("closed"));
      result.seen("one that is", edge.taken("open"));
   }

   static void filteredQueue(Broker edge, Broker hub, Result result) throws Exception {
      edge.send("paint", 0, 6, (number, message) ->
         message.putStringProperty("color", number % 2 == 0 ? "red" : "blue"));
      result.seen("red", edge.read("paint.red", new ArrayList<>()));
      result.seen("all", edge.read("paint.all", new ArrayList<>()));
   }

   static void divert(Broker edge, Broker hub, Result result) throws Exception {
      edge.send("news", 0, 6, (number, message) ->
         message.putStringProperty("region", number % 3 == 0 ? "eu" : "us"));
      edge.await("news.eu", 2);
      result.seen("copied", edge.read("news.eu", new ArrayList<>()));
      result.seen("at the address itself", edge.read("news.all", new ArrayList<>()));
   }

   /** Every other one is a goat; each is as old as its number, modulo 10. */
   static void animal(int number, ClientMessage message) {
      message.putStringProperty("animal", number % 2 == 0 ? "goat" : "monkey").putIntProperty("age", number % 10);
   }

   // ------------------------------------------------------------------------------------------- brokers, clients

   static final class Broker implements AutoCloseable {
      final String name;
      ActiveMQServer server;

      Broker(String name) {
         this.name = name;
      }

      void start() throws Exception {
         Stamp.class.getName();  // named by edge.xml only
         FileConfiguration configuration = new FileConfiguration();
         Path file = Path.of(System.getProperty("originals"), name + ".xml");
         new FileDeploymentManager(file.toUri().toString()).addDeployable(configuration).readConfiguration();
         server = ActiveMQServers.newActiveMQServer(configuration, true);
         server.start();
      }

      void restart() throws Exception {
         server.stop();
         start();
      }

      @Override
      public void close() throws Exception {
         if (server != null) {
            server.stop();
         }
      }

      void send(String address, int from, int upto, BiConsumer<Integer, ClientMessage> more) throws Exception {
         try (Client client = new Client(this)) {
            for (int number = from; number < upto; number++) {
               ClientMessage message = client.session.createMessage(true).putIntProperty("n", number);
               more.accept(number, message);
               client.session.createProducer().send(address, message);
            }
         }
      }

      /** What became of one message: Artemis does not say, but its queue has one more or not. */
      String verdict(String address, String queue, int size, Consumer<ClientMessage> more)
            throws Exception {
         long before = count(queue);
         try (Client client = new Client(this)) {
            ClientMessage message = client.session.createMessage(true).putIntProperty("n", 0);
            message.getBodyBuffer().writeBytes(new byte[size]);
            more.accept(message);
            client.session.createProducer().send(address, message);
         } catch (ActiveMQException refused) {
            return "refused";
         }
         return count(queue) > before ? "stored" : "duplicate";
      }

      /** What becomes of a typed message, as JMS clients send them, to an address that is not there. */
      String taken(String address) throws Exception {
         return switch (verdict(address, address, 10, message -> message.setRoutingType(RoutingType.ANYCAST))) {
            case "refused" -> "refused";
            case "stored" -> "there";
            default -> server.getAddressInfo(SimpleString.of(address)) == null ? "gone, without an error" : "no queue";
         };
      }

      long count(String queue) {
         Queue found = server.locateQueue(queue);
         return found == null ? 0 : found.getMessageCount();
      }

      void await(String queue, int number) throws Exception {
         Cases.await(number + " messages in " + queue, () -> count(queue) >= number);
      }

      List<String> marks(String queue) throws Exception {
         List<String> marks = new ArrayList<>();
         read(queue, marks);
         return marks;
      }

      /** All that wait in a queue, acknowledged; the different marks of the transformer go to a list. */
      List<Integer> read(String queue, List<String> marks) throws Exception {
         List<Integer> read = new ArrayList<>();
         try (Client client = new Client(this); ClientConsumer consumer = client.session.createConsumer(queue)) {
            for (ClientMessage got = consumer.receiveImmediate(); got != null; got = consumer.receiveImmediate()) {
               read.add(got.getIntProperty("n"));
               String mark = got.getStringProperty("mark");
               if (mark != null && !marks.contains(mark)) {
                  marks.add(mark);
               }
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

      Client(Broker broker) throws Exception {
         locator = ActiveMQClient.createServerLocator("tcp://127.0.0.1:" + System.getProperty(broker.name + ".port"))
            .setAckBatchSize(0).setBlockOnDurableSend(true);
         factory = locator.createSessionFactory();
         session = factory.createSession(true, true, 0);
         session.start();
      }

      @Override
      public void close() throws ActiveMQException {
         session.close();
         factory.close();
         locator.close();
      }
   }
}
