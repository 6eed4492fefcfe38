// Runs cases of clusters on real Artemis brokers: two or three of them, static TCP connectors on the loopback
// interface, journals on disk. Arguments: a directory, then names of cases (none: all). A JSON line out for each
// case: {"case", "seen", "notes"}; "seen" is compared with this project (clusters.py runs the same cases), "notes" is
// only shown. A broker that a case kills runs in a process of its own: this program with "serve" as its argument.

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.BiConsumer;
import java.util.function.BooleanSupplier;
import java.util.stream.Collectors;
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
import org.apache.activemq.artemis.core.config.ClusterConnectionConfiguration;
import org.apache.activemq.artemis.core.config.Configuration;
import org.apache.activemq.artemis.core.config.CoreAddressConfiguration;
import org.apache.activemq.artemis.core.config.ScaleDownConfiguration;
import org.apache.activemq.artemis.core.config.ha.PrimaryOnlyPolicyConfiguration;
import org.apache.activemq.artemis.core.config.impl.ConfigurationImpl;
import org.apache.activemq.artemis.core.postoffice.Binding;
import org.apache.activemq.artemis.core.server.ActiveMQServer;
import org.apache.activemq.artemis.core.server.ActiveMQServers;
import org.apache.activemq.artemis.core.server.JournalType;
import org.apache.activemq.artemis.core.server.Queue;
import org.apache.activemq.artemis.core.server.cluster.ClusterConnection;
import org.apache.activemq.artemis.core.server.cluster.RemoteQueueBinding;
import org.apache.activemq.artemis.core.server.cluster.impl.MessageLoadBalancingType;
import org.apache.activemq.artemis.core.settings.impl.AddressSettings;

public class ClusterCases {

   static final long PATIENCE_MS = 30_000;
   static final long RETRY_INTERVAL_MS = 200;
   /** How often a case is run in which messages are lost. */
   static final int ROUNDS = 10;
   /** How often a scale-down is tried that Artemis breaks off. */
   static final int ATTEMPTS = 10;
   static final String STORE_AND_FORWARD = "$.artemis.internal.sf.cluster.";
   static final String CHILD_HEAP = "-Xmx256m";

   interface Case {
      void run(Path directory, Result result) throws Exception;
   }

   static final Map<String, Case> CASES = new LinkedHashMap<>();

   static {
      CASES.put("strict", ClusterCases::strict);
      CASES.put("on-demand", ClusterCases::onDemand);
      CASES.put("off", ClusterCases::off);
      CASES.put("off-with-redistribution", ClusterCases::offWithRedistribution);
      CASES.put("multicast", ClusterCases::multicast);
      CASES.put("redistribution", ClusterCases::redistribution);
      CASES.put("redistribution-filter", ClusterCases::redistributionFilter);
      CASES.put("killed-node", ClusterCases::killedNode);
      CASES.put("redistribution-killed-node", ClusterCases::redistributionKilledNode);
      CASES.put("clean-stop", ClusterCases::cleanStop);
      CASES.put("deleted-queue", ClusterCases::deletedQueue);
      CASES.put("remade-queue", ClusterCases::remadeQueue);
      CASES.put("deleted-queue-elsewhere", ClusterCases::deletedQueueElsewhere);
      CASES.put("scale-down", ClusterCases::scaleDown);
      CASES.put("scale-down-parked", ClusterCases::scaleDownParked);
      CASES.put("scale-down-parked-heir-lacks", ClusterCases::scaleDownParkedHeirLacks);
      CASES.put("scale-down-ids", ClusterCases::scaleDownIds);
   }

   public static void main(String[] arguments) throws Exception {
      if (arguments[0].equals("serve")) {
         serve(arguments);
         return;
      }
      Program.run(arguments, CASES.keySet(), ClusterCases::run);
   }

   static void run(String name, Path directory, Result result) throws Exception {
      for (int attempt = 1; ; attempt++) {
         result.clear();
         try {
            CASES.get(name).run(Files.createDirectories(directory.resolve("attempt-" + attempt)), result);
            return;
         } catch (NotHandedOver error) {
            if (attempt == ATTEMPTS) {
               throw error;
            }
         }
      }
   }

   /** A stop that ended with a NullPointerException before anything was handed over: Artemis asks for its heir's
    *  place in a topology that may not have come yet. It says nothing about what is lost, so the round is run again.
    */
   static final class NotHandedOver extends Exception {
      NotHandedOver(NullPointerException cause) {
         super(cause);
      }
   }

   /** One broker in this process, until its standard input ends: that its parent has gone ends it too. */
   static void serve(String[] arguments) throws Exception {
      Plan plan = new Plan();
      plan.balancing = arguments[4];
      plan.delayMs = Long.parseLong(arguments[5]);
      int[] ports = Arrays.stream(arguments[3].split(",")).mapToInt(Integer::parseInt).toArray();
      Configuration configuration = configured(Path.of(arguments[1]), Integer.parseInt(arguments[2]), ports, plan);
      ActiveMQServer server = ActiveMQServers.newActiveMQServer(configuration, true);
      server.start();
      System.out.println("ready " + server.getNodeID());
      System.out.flush();
      while (System.in.read() >= 0) {
         continue;
      }
      Runtime.getRuntime().halt(0);
   }

   // ------------------------------------------------------------------------------------------------ the cases

   static void strict(Path directory, Result result) throws Exception {
      Plan plan = new Plan();
      plan.balancing = "STRICT";
      plan.anycast.put("jobs", List.of(0, 1));
      try (Cluster cluster = new Cluster(directory, 3, plan)) {
         Broker n0 = cluster.of(0);
         Broker n1 = cluster.of(1);
         n0.awaitPlace("jobs", "jobs", 1, 0);
         n1.awaitPlace("jobs", "jobs", 0, 0);
         n0.send("jobs", 0, 10);
         cluster.awaitSettled();
         result.seen("one queue of turns, 10 to n0: n0 has", n0.read("jobs"));
         result.seen("one queue of turns, 10 to n0: n1 has", n1.read("jobs"));
         result.seen("acknowledged over the link", n0.acknowledged());
         n1.send("jobs", 10, 20);
         cluster.awaitSettled();
         result.seen("10 more to n1: n0 has", n0.read("jobs"));
         result.seen("10 more to n1: n1 has", n1.read("jobs"));

         for (int number : List.of(2, 1, 0)) {
            cluster.of(number).queue("news", "q", RoutingType.MULTICAST, null);
            n0.awaitPlace("news", "q", number, 0);
         }
         n0.send("news", 0, 9);
         cluster.awaitSettled();
         for (int number : List.of(2, 1, 0)) {
            result.seen("places made at n2, n1, n0; 9 to n0: n" + number + " has", cluster.of(number).read("q"));
         }
         try (Client reader = n1.client()) {
            reader.idle("q");
            n0.awaitPlace("news", "q", 1, 1);
            n0.send("news", 0, 12);
            cluster.awaitSettled();
            result.seen("a reader at n1 alone, 12 to n0: shares", cluster.counts("q"));
         }
      }
   }

   static void onDemand(Path directory, Result result) throws Exception {
      Plan plan = new Plan();
      for (String address : List.of("nowhere", "there", "here", "both", "late")) {
         plan.anycast.put(address, List.of(0, 1));
      }
      try (Cluster cluster = new Cluster(directory, 2, plan)) {
         Broker n0 = cluster.of(0);
         Broker n1 = cluster.of(1);
         for (String address : plan.anycast.keySet()) {
            n0.awaitPlace(address, address, 1, 0);
         }
         n0.send("nowhere", 0, 10);
         cluster.awaitSettled();
         result.seen("no reader: shares", cluster.counts("nowhere"));
         result.seen("reader at n1 alone: shares", shares(cluster, "there", false, true));
         result.seen("reader at n0 alone: shares", shares(cluster, "here", true, false));
         result.seen("readers at both: shares", shares(cluster, "both", true, true));
         n0.send("late", 0, 10);
         try (Client reader = n1.client()) {
            reader.idle("late");
            n0.awaitPlace("late", "late", 1, 1);
            n0.send("late", 10, 11);
            cluster.awaitSettled();
            result.seen("a reader that came to n1 later: shares", cluster.counts("late"));
         }
         n1.queue("news", "q", RoutingType.MULTICAST, null);
         n0.awaitPlace("news", "q", 1, 0);
         n0.send("news", 0, 10);
         cluster.awaitSettled();
         result.seen("MULTICAST, the queue at n1 alone, no reader: shares", cluster.counts("q"));
         for (String kind : List.of("untyped", "typed")) {
            n1.queue(kind, kind, RoutingType.ANYCAST, null);
            n0.awaitPlace(kind, kind, 1, 0);
            n0.send(kind, 0, 10, (number, message) -> {
               if (kind.equals("typed")) {
                  message.setRoutingType(RoutingType.ANYCAST);
               }
            });
            cluster.awaitSettled();
            result.seen("ANYCAST, " + kind + " message, the queue at n1 alone: shares", cluster.counts(kind));
         }
      }
   }

   static List<Integer> shares(Cluster cluster, String address, boolean here, boolean there) throws Exception {
      try (Client reader = cluster.of(0).client(); Client other = cluster.of(1).client()) {
         if (here) {
            reader.idle(address);
            cluster.of(1).awaitPlace(address, address, 0, 1);
         }
         if (there) {
            other.idle(address);
            cluster.of(0).awaitPlace(address, address, 1, 1);
         }
         cluster.of(0).send(address, 0, 10);
         cluster.awaitSettled();
         return cluster.counts(address);
      }
   }

   static void off(Path directory, Result result) throws Exception {
      Plan plan = new Plan();
      plan.balancing = "OFF";
      plan.anycast.put("both", List.of(0, 1));
      plan.anycast.put("there", List.of(1));
      try (Cluster cluster = new Cluster(directory, 2, plan)) {
         Broker n0 = cluster.of(0);
         Broker n1 = cluster.of(1);
         n0.awaitPlace("both", "both", 1, 0);
         n0.awaitPlace("there", "there", 1, 0);
         result.seen("ANYCAST at both, reader at n1 alone: shares", shares(cluster, "both", false, true));
         n0.send("there", 0, 10);
         cluster.awaitSettled();
         result.seen("ANYCAST, the queue at n1 alone: shares", cluster.counts("there"));
         for (Broker node : cluster.nodes) {
            node.queue("news", "q", RoutingType.MULTICAST, null);
         }
         n1.queue("news", "only-there", RoutingType.MULTICAST, null);
         n0.awaitPlace("news", "q", 1, 0);
         n0.awaitPlace("news", "only-there", 1, 0);
         n0.send("news", 0, 10, (number, message) -> message.setRoutingType(RoutingType.MULTICAST));
         cluster.awaitSettled();
         result.seen("MULTICAST name at both, no reader: shares", cluster.counts("q"));
         result.seen("MULTICAST name at n1 alone: shares", cluster.counts("only-there"));
      }
   }

   static void offWithRedistribution(Path directory, Result result) throws Exception {
      Plan plan = new Plan();
      plan.balancing = "OFF_WITH_REDISTRIBUTION";
      plan.delayMs = 0;
      plan.anycast.put("jobs", List.of(0, 1));
      try (Cluster cluster = new Cluster(directory, 2, plan)) {
         Broker n0 = cluster.of(0);
         Broker n1 = cluster.of(1);
         n0.awaitPlace("jobs", "jobs", 1, 0);
         Client here = n0.client();
         here.idle("jobs");
         try (Client there = n1.client()) {
            List<Integer> got = there.listen("jobs");
            n0.awaitPlace("jobs", "jobs", 1, 1);
            n0.send("jobs", 0, 4);
            cluster.awaitSettled();
            result.seen("ANYCAST, readers at both: n0 has", n0.count("jobs"));
            here.close();
            await("all move", () -> got.size() >= 4);
            result.seen("the reader at n0 leaves: the one at n1 gets", List.copyOf(got));
            result.seen("left at n0", n0.count("jobs"));
         }
         for (Broker node : cluster.nodes) {
            node.queue("news", "q", RoutingType.MULTICAST, null);
         }
         n0.awaitPlace("news", "q", 1, 0);
         try (Client reader = n0.client(); Client other = n1.client()) {
            reader.idle("q");
            other.idle("q");
            n0.awaitPlace("news", "q", 1, 1);
            n0.send("news", 0, 10, (number, message) -> message.setRoutingType(RoutingType.MULTICAST));
            cluster.awaitSettled();
            result.seen("MULTICAST name at both, readers at both: shares", cluster.counts("q"));
         }
      }
   }

   static void multicast(Path directory, Result result) throws Exception {
      Plan plan = new Plan();
      plan.balancing = "STRICT";
      try (Cluster cluster = new Cluster(directory, 2, plan)) {
         Broker n0 = cluster.of(0);
         Broker n1 = cluster.of(1);
         for (int number = 0; number < 3; number++) {
            n0.queue("news", "here-" + number, RoutingType.MULTICAST, null);
            n1.queue("news", "there-" + number, RoutingType.MULTICAST, null);
            n0.awaitPlace("news", "there-" + number, 1, 0);
         }
         n0.queue("news", "shared", RoutingType.MULTICAST, null);
         n1.queue("news", "shared", RoutingType.MULTICAST, null);
         n0.awaitPlace("news", "shared", 1, 0);
         n1.queue("news", "filtered", RoutingType.MULTICAST, "color = 'red'");
         n0.awaitPlace("news", "filtered", 1, 0);
         n0.sendColoured("news", 0, 10);
         cluster.awaitSettled();
         List<Integer> here = new ArrayList<>();
         List<Integer> there = new ArrayList<>();
         for (int number = 0; number < 3; number++) {
            here.add(n0.read("here-" + number).size());
            there.add(n1.read("there-" + number).size());
         }
         result.seen("three names at n0: each has", here);
         result.seen("three names at n1: each has", there);
         result.seen("a name at both: n0 has", n0.read("shared"));
         result.seen("a name at both: n1 has", n1.read("shared"));
         result.seen("a filtered name at n1 has", n1.read("filtered"));
         result.seen("acknowledged over the link", n0.acknowledged());
      }
   }

   static void redistribution(Path directory, Result result) throws Exception {
      Plan plan = new Plan();
      plan.delayMs = 1500;
      for (String address : List.of("jobs", "held", "canary", "never")) {
         plan.anycast.put(address, List.of(0, 1));
      }
      try (Cluster cluster = new Cluster(directory, 2, plan)) {
         Broker n0 = cluster.of(0);
         Broker n1 = cluster.of(1);
         for (String address : plan.anycast.keySet()) {
            n0.awaitPlace(address, address, 1, 0);
         }
         n0.send("jobs", 0, 20);
         try (Client there = n1.client()) {
            long begun = System.nanoTime();
            List<Integer> got = there.listen("jobs");
            await("the first moves", () -> !got.isEmpty());
            result.note("the first came after, in ms", (System.nanoTime() - begun) / 1_000_000);
            await("all move", () -> got.size() >= 20);
            result.seen("reader at n1 alone, 20 at n0: it gets", List.copyOf(got));
            result.seen("left at n0", n0.count("jobs"));
         }
         n0.queue("news", "sub", RoutingType.MULTICAST, null);
         n1.queue("news", "sub", RoutingType.MULTICAST, null);
         n0.awaitPlace("news", "sub", 1, 0);
         n0.send("news", 0, 20);
         try (Client there = n1.client()) {
            List<Integer> got = there.listen("sub");
            await("all of the subscription move", () -> got.size() >= 20);
            result.seen("a MULTICAST name, 20 at n0: the reader at n1 gets", List.copyOf(got));
         }

         // What must not move is looked at when something that was ready later has moved.
         n0.send("never", 0, 20);
         try (Client here = n0.client(); Client there = n1.client()) {
            here.idle("held");
            n0.send("held", 0, 20);
            List<Integer> held = there.listen("held");
            List<Integer> never = there.listen("never");
            n0.awaitPlace("held", "held", 1, 1);
            canary(cluster);
            result.seen("a reader at n0 that takes none: the one at n1 gets", held.size());
            result.seen("redistribution-delay -1: the reader at n1 gets", never.size());
         }
      }
   }

   static void redistributionFilter(Path directory, Result result) throws Exception {
      Plan plan = new Plan();
      plan.delayMs = 0;
      plan.anycast.put("canary", List.of(0, 1));
      try (Cluster cluster = new Cluster(directory, 2, plan)) {
         Broker n0 = cluster.of(0);
         Broker n1 = cluster.of(1);
         n0.awaitPlace("canary", "canary", 1, 0);
         n0.queue("filtered", "filtered", RoutingType.MULTICAST, null);
         n1.queue("filtered", "filtered", RoutingType.MULTICAST, "color = 'red'");
         n0.awaitPlace("filtered", "filtered", 1, 0);
         n0.sendColoured("filtered", 0, 20);
         try (Client there = n1.client()) {
            List<Integer> got = there.listen("filtered");
            canary(cluster);
            canary(cluster);
            got.sort(null);
            result.seen("the queue at n1 takes every other message: its reader gets", List.copyOf(got));
            result.seen("the queue at n1 takes every other message: left at n0", n0.read("filtered"));
         }
      }
   }

   /** Return once a message that was sent now, and waits for the delay, has been moved. */
   static void canary(Cluster cluster) throws Exception {
      cluster.of(0).send("canary", 0, 1);
      try (Client there = cluster.of(1).client()) {
         List<Integer> got = there.listen("canary");
         await("the canary moves", () -> got.size() >= 1);
      }
      cluster.awaitSettled();
      cluster.of(0).awaitPlace("canary", "canary", 1, 0);
   }

   static void killedNode(Path directory, Result result) throws Exception {
      Plan plan = new Plan();
      plan.balancing = "STRICT";
      plan.processes.add(1);
      try (Cluster cluster = new Cluster(directory, 3, plan)) {
         Broker n0 = cluster.of(0);
         Broker n1 = cluster.of(1);
         for (int number = 0; number < 3; number++) {
            cluster.of(number).queue("news", "shared", RoutingType.MULTICAST, null);
            n0.awaitPlace("news", "shared", number, 0);
         }
         n1.queue("news", "only", RoutingType.MULTICAST, null);
         n0.awaitPlace("news", "only", 1, 0);
         n1.kill();
         n0.awaitUnreachable(n1);
         n0.send("news", 0, 10);
         await("what is for n2 has arrived", () -> n0.parked(cluster.of(2)) == 0);
         result.seen("parked at n0 for n1", n0.parked(n1));
         result.seen("a name at all three: n0 and n2 have",
            List.of((int) n0.count("shared"), (int) cluster.of(2).count("shared")));
         n1.start();
         await("what was parked arrives", () -> n0.parked(n1) == 0);
         result.seen("n1 is back: the name that only it has has", n1.read("only"));
         result.seen("n1 is back: the shared name has there", n1.count("shared"));
         n0.read("shared");
         cluster.of(2).read("shared");
         n0.awaitPlace("news", "shared", 1, 0);
         n0.send("news", 10, 16);
         cluster.awaitSettled();
         result.seen("6 more: shares of the shared name", cluster.counts("shared"));
      }
   }

   static void redistributionKilledNode(Path directory, Result result) throws Exception {
      Plan plan = new Plan();
      plan.delayMs = 0;
      plan.processes.add(1);
      try (Cluster cluster = new Cluster(directory, 3, plan)) {
         Broker n0 = cluster.of(0);
         Broker n1 = cluster.of(1);
         Broker n2 = cluster.of(2);
         for (int number = 0; number < 3; number++) {
            cluster.of(number).queue("jobs", "jobs", RoutingType.ANYCAST, null);
            n0.awaitPlace("jobs", "jobs", number, 0);
         }
         Client here = n0.client();
         here.idle("jobs");
         n0.send("jobs", 0, 20);
         Client lost = n1.client();
         lost.idle("jobs");
         n0.awaitPlace("jobs", "jobs", 1, 1);
         try (Client there = n2.client()) {
            List<Integer> got = there.listen("jobs");
            n0.awaitPlace("jobs", "jobs", 2, 1);
            n1.kill();
            n0.awaitUnreachable(n1);
            here.close();
            await("all have left n0 or are parked", () -> got.size() + n0.parked(n1) >= 20);
            result.seen("the reader at n0 leaves: the live one at n2 gets", got.size());
            result.seen("parked at n0 for the dead n1", n0.parked(n1));
         }
      }
   }

   static void cleanStop(Path directory, Result result) throws Exception {
      try (Cluster cluster = new Cluster(directory, 2, new Plan())) {
         Broker n0 = cluster.of(0);
         Broker n1 = cluster.of(1);
         n1.queue("news", "only", RoutingType.MULTICAST, null);
         n0.awaitPlace("news", "only", 1, 0);
         n0.link(n1).pause();
         n0.send("news", 0, 5);
         result.seen("parked before the stop", n0.parked(n1));
         n1.server.stop();
         n0.awaitPlaces("news", 0);
         result.seen("sent after it", n0.verdict("news", 5, null));
         for (int number = 6; number < 10; number++) {
            n0.verdict("news", number, null);
         }
         result.seen("parked after it", n0.parked(n1));
         n1.start();
         n0.link(n1).resume();
         await("what was parked arrives", () -> n1.count("only") >= 5);
         cluster.awaitSettled();
         n0.queue("news", "made-now", RoutingType.MULTICAST, null);
         result.seen("n1 is back: its queue has", n1.read("only"));
         result.seen("of those sent after the stop still there at n0", n0.count("made-now"));
      }
   }

   static void deletedQueue(Path directory, Result result) throws Exception {
      try (Cluster cluster = new Cluster(directory, 3, new Plan())) {
         List<Integer> lost = new ArrayList<>();
         for (int round = 0; round < ROUNDS; round++) {
            String address = "news." + round;
            crossing(cluster, address, () -> cluster.of(1).delete(address + ".q"));
            lost.add(10 - (int) cluster.sum(address + ".q") - (int) cluster.sum("DLQ"));
            for (Broker node : cluster.nodes) {
               node.read("DLQ");
            }
         }
         result.seen("lost", lost.stream().anyMatch(number -> number > 0));
         result.note("lost of 10, by round", lost);
      }
   }

   static void remadeQueue(Path directory, Result result) throws Exception {
      try (Cluster cluster = new Cluster(directory, 3, new Plan())) {
         List<Integer> lost = new ArrayList<>();
         for (int round = 0; round < ROUNDS; round++) {
            String address = "news." + round;
            crossing(cluster, address, () -> {
               cluster.of(1).delete(address + ".q");
               cluster.of(1).queue(address, address + ".q", RoutingType.MULTICAST, null);
            });
            lost.add(10 - (int) cluster.sum(address + ".q"));
         }
         result.seen("lost", lost.stream().anyMatch(number -> number > 0));
         result.note("lost of 10, by round", lost);
      }
   }

   static void deletedQueueElsewhere(Path directory, Result result) throws Exception {
      try (Cluster cluster = new Cluster(directory, 3, new Plan())) {
         List<Integer> lost = new ArrayList<>();
         for (int round = 0; round < ROUNDS; round++) {
            String address = "news." + round;
            crossing(cluster, address, () -> {
               cluster.of(1).delete(address + ".q");
               cluster.of(2).queue(address, address + ".q", RoutingType.MULTICAST, null);
               cluster.of(1).awaitPlace(address, address + ".q", 2, 0);
               cluster.of(0).awaitPlace(address, address + ".q", 2, 0);
            });
            lost.add(10 - (int) cluster.sum(address + ".q"));
         }
         result.seen("lost", lost.stream().anyMatch(number -> number > 0));
         result.note("lost of 10, by round", lost);
      }
   }

   interface Step {
      void run() throws Exception;
   }

   /** Ten messages to n0 for a queue that only n1 has; the step is done while they wait on the link. */
   static void crossing(Cluster cluster, String address, Step meanwhile) throws Exception {
      Broker n0 = cluster.of(0);
      Broker n1 = cluster.of(1);
      n1.queue(address, address + ".q", RoutingType.MULTICAST, null);
      n0.awaitPlace(address, address + ".q", 1, 0);
      n0.link(n1).pause();
      n0.send(address, 0, 10);
      await("all wait on the link", () -> n0.parked(n1) == 10);
      meanwhile.run();
      n0.link(n1).resume();
      cluster.awaitSettled();
   }

   static void scaleDown(Path directory, Result result) throws Exception {
      Plan plan = new Plan();
      plan.scaleDown = true;
      try (Cluster cluster = new Cluster(directory, 2, plan)) {
         Broker n0 = cluster.of(0);
         Broker n1 = cluster.of(1);
         n0.queue("news", "q1", RoutingType.MULTICAST, null);
         n0.queue("news", "q2", RoutingType.MULTICAST, null);
         n1.queue("news", "own", RoutingType.MULTICAST, null);
         n0.awaitPlace("news", "own", 1, 0);
         n0.link(n1).pause();
         n0.send("news", 0, 10);
         result.seen("parked for the heir", n0.parked(n1));
         result.seen("read of q2 before", n0.read("q2", 4));
         n0.handOver();
         await("all arrive", () -> n1.count("q1") >= 10 && n1.count("q2") >= 6 && n1.count("own") >= 10);
         result.seen("the heir's q1 has", n1.read("q1"));
         result.seen("the heir's q2 has", n1.read("q2"));
         result.seen("the heir's own queue has", n1.read("own"));
      }
   }

   static void scaleDownParked(Path directory, Result result) throws Exception {
      parked(directory, result, List.of(0, 1));
   }

   static void scaleDownParkedHeirLacks(Path directory, Result result) throws Exception {
      parked(directory, result, List.of(0));
   }

   /** n2 has 20 parked, all for the leaver n0, or half of them for the heir n1. */
   static void parked(Path directory, Result result, List<Integer> holders) throws Exception {
      List<Integer> lost = new ArrayList<>();
      int broken = 0;
      for (int attempt = 0; lost.size() < ROUNDS; attempt++) {
         Plan plan = new Plan();
         plan.balancing = "STRICT";
         plan.scaleDown = true;
         try (Cluster cluster = new Cluster(directory.resolve("round-" + attempt), 3, plan)) {
            Broker n0 = cluster.of(0);
            Broker n1 = cluster.of(1);
            Broker n2 = cluster.of(2);
            for (int number : holders) {
               cluster.of(number).queue("news", "q", RoutingType.MULTICAST, null);
               n2.awaitPlace("news", "q", number, 0);
            }
            n2.link(n0).pause();
            n2.link(n1).pause();
            n2.send("news", 0, 20);
            await("all wait on the links", () -> n2.parked(n0) + n2.parked(n1) == 20);
            n0.handOver();
            for (Broker peer : List.of(n0, n1)) {
               Queue link = n2.link(peer);
               if (link != null) {
                  link.resume();
               }
            }
            await("nothing waits for the leaver or the heir", () -> n2.parked(n0) == 0 && n2.parked(n1) == 0);
            lost.add(20 - (int) n1.count("q") - (int) n1.count("DLQ") - (int) n2.count("q"));
         } catch (NotHandedOver error) {
            broken++;
            if (broken > ATTEMPTS) {
               throw error;
            }
         }
      }
      result.note("stops that ended with a NullPointerException, tried again", broken);
      result.seen("lost", lost.stream().anyMatch(number -> number > 0));
      result.note("lost of 20, by round", lost);
   }

   static void scaleDownIds(Path directory, Result result) throws Exception {
      Plan plan = new Plan();
      plan.scaleDown = true;
      try (Cluster cluster = new Cluster(directory, 2, plan)) {
         Broker n0 = cluster.of(0);
         Broker n1 = cluster.of(1);
         n0.queue("orders", "q", RoutingType.MULTICAST, null);
         for (int number = 0; number < 6; number++) {
            n0.verdict("orders", number, "id-" + number);
         }
         result.seen("consumed before", n0.read("q", 3));
         n0.handOver();
         await("the rest arrives", () -> n1.count("q") >= 3);
         List<String> verdicts = new ArrayList<>();
         for (int number = 0; number < 6; number++) {
            long before = n1.count("q");
            n1.verdict("orders", number, "id-" + number);
            verdicts.add(n1.count("q") > before ? "stored" : "duplicate");
         }
         result.seen("IDs of consumed messages, sent again to the heir", verdicts.subList(0, 3));
         result.seen("IDs of moved messages, sent again to the heir", verdicts.subList(3, 6));
      }
   }

   // ------------------------------------------------------------------------------------------- brokers, clients

   /** How the brokers of a cluster are set up. */
   static final class Plan {
      String balancing = "ON_DEMAND";
      long delayMs = -1;
      /** ANYCAST addresses that are there from the start, and the brokers that have them. */
      final Map<String, List<Integer>> anycast = new LinkedHashMap<>();
      /** Whether n0 hands over to n1 when it stops. */
      boolean scaleDown;
      /** Brokers that run in processes of their own. */
      final Set<Integer> processes = new HashSet<>();
   }

   static Configuration configured(Path directory, int number, int[] ports, Plan plan) throws Exception {
      String data = directory.resolve("n" + number).toString();
      AddressSettings all = new AddressSettings().setRedistributionDelay(plan.delayMs);
      // As careful as Artemis can be told to be: what has no queue goes to the dead letters.
      AddressSettings news = new AddressSettings().setDeadLetterAddress(SimpleString.of("DLQ"))
         .setSendToDLAOnNoRoute(true);
      AddressSettings never = new AddressSettings().setRedistributionDelay(-1);
      List<String> others = IntStream.range(0, ports.length).filter(other -> other != number)
         .mapToObj(other -> "n" + other).toList();
      Configuration configuration = new ConfigurationImpl().setName("n" + number).setSecurityEnabled(false)
         .setJMXManagementEnabled(false).setPersistenceEnabled(true).setJournalType(JournalType.NIO)
         .setJournalDirectory(data + "/journal").setBindingsDirectory(data + "/bindings")
         .setPagingDirectory(data + "/paging").setLargeMessagesDirectory(data + "/large")
         .setJournalFileSize(1024 * 1024).setMaxDiskUsage(-1).setClusterPassword("of these tests")
         .addAcceptorConfiguration("tcp", "tcp://127.0.0.1:" + ports[number])
         .addAddressSetting("#", all).addAddressSetting("news.#", news).addAddressSetting("never", never)
         .addClusterConfiguration(new ClusterConnectionConfiguration().setName("cluster").setAddress("")
            .setConnectorName("n" + number).setStaticConnectors(others).setMaxHops(1)
            .setRetryInterval(RETRY_INTERVAL_MS).setMaxRetryInterval(RETRY_INTERVAL_MS)
            .setMessageLoadBalancingType(MessageLoadBalancingType.valueOf(plan.balancing)));
      for (int other = 0; other < ports.length; other++) {
         configuration.addConnectorConfiguration("n" + other, "tcp://127.0.0.1:" + ports[other]);
      }
      configuration.addAddressConfiguration(new CoreAddressConfiguration().setName("DLQ")
         .addRoutingType(RoutingType.ANYCAST).addQueueConfig(QueueConfiguration.of("DLQ").setAddress("DLQ")
            .setRoutingType(RoutingType.ANYCAST)));
      plan.anycast.forEach((address, holders) -> {
         if (holders.contains(number)) {
            configuration.addAddressConfiguration(new CoreAddressConfiguration().setName(address)
               .addRoutingType(RoutingType.ANYCAST).addQueueConfig(QueueConfiguration.of(address)
                  .setAddress(address).setRoutingType(RoutingType.ANYCAST)));
         }
      });
      if (plan.scaleDown && number == 0) {
         configuration.setHAPolicyConfiguration(new PrimaryOnlyPolicyConfiguration(
            new ScaleDownConfiguration().setEnabled(true).setConnectors(List.of("n1"))));
      }
      return configuration;
   }

   /** Brokers n0, n1 … that know and reach each other. */
   static final class Cluster implements AutoCloseable {
      final List<Broker> nodes = new ArrayList<>();

      Cluster(Path directory, int count, Plan plan) throws Exception {
         int[] ports = freePorts(count);
         try {
            for (int number = 0; number < count; number++) {
               nodes.add(new Broker(this, directory, number, ports, plan));
               nodes.get(number).start();
            }
            for (Broker node : nodes) {
               if (node.server != null) {
                  await("all brokers are linked", () -> node.members() == count - 1);
               }
            }
         } catch (Exception error) {
            close();
            throw error;
         }
      }

      Broker of(int number) {
         return nodes.get(number);
      }

      List<Integer> counts(String queue) {
         return nodes.stream().map(node -> (int) node.count(queue)).toList();
      }

      long sum(String queue) {
         return nodes.stream().mapToLong(node -> node.count(queue)).sum();
      }

      /** Return once nothing waits for another broker. */
      void awaitSettled() throws InterruptedException {
         await("nothing waits for another broker", () -> nodes.stream().filter(Broker::isUp)
            .allMatch(node -> nodes.stream().allMatch(peer -> node.parked(peer) == 0)));
      }

      @Override
      public void close() throws Exception {
         for (int number = nodes.size() - 1; number >= 0; number--) {
            nodes.get(number).close();
         }
      }
   }

   static int[] freePorts(int count) throws IOException {
      List<ServerSocket> sockets = new ArrayList<>();
      for (int number = 0; number < count; number++) {
         sockets.add(new ServerSocket(0, 1, InetAddress.getLoopbackAddress()));
      }
      int[] ports = sockets.stream().mapToInt(ServerSocket::getLocalPort).toArray();
      for (ServerSocket socket : sockets) {
         socket.close();
      }
      return ports;
   }

   static final class Broker implements AutoCloseable {
      final Cluster cluster;
      final Path directory;
      final int number;
      final int[] ports;
      final Plan plan;
      /** In this process, if it is not null. */
      ActiveMQServer server;
      Process process;
      String nodeId;

      Broker(Cluster cluster, Path directory, int number, int[] ports, Plan plan) {
         this.cluster = cluster;
         this.directory = directory;
         this.number = number;
         this.ports = ports;
         this.plan = plan;
      }

      void start() throws Exception {
         if (!plan.processes.contains(number)) {
            server = ActiveMQServers.newActiveMQServer(configured(directory, number, ports, plan), true);
            server.start();
            nodeId = server.getNodeID().toString();
            return;
         }
         String java = Path.of(System.getProperty("java.home"), "bin", "java").toString();
         String all = Arrays.stream(ports).mapToObj(String::valueOf).collect(Collectors.joining(","));
         process = new ProcessBuilder(java, CHILD_HEAP, "-cp", System.getProperty("java.class.path"),
            "ClusterCases", "serve", directory.toString(), String.valueOf(number), all, plan.balancing,
            String.valueOf(plan.delayMs)).redirectError(ProcessBuilder.Redirect.DISCARD).start();
         BufferedReader output = new BufferedReader(new InputStreamReader(process.getInputStream()));
         String line = output.readLine();
         while (line != null && !line.startsWith("ready ")) {
            line = output.readLine();
         }
         if (line == null) {
            throw new IllegalStateException("n" + number + " ended before it was ready");
         }
         nodeId = line.substring("ready ".length());
      }

      /** SIGKILL. */
      void kill() throws InterruptedException {
         process.destroyForcibly().waitFor();
         process = null;
      }

      /** Stop, and so scale down. */
      void handOver() throws Exception {
         try {
            server.stop();
         } catch (NullPointerException error) {
            throw new NotHandedOver(error);
         }
      }

      boolean isUp() {
         return server != null && server.isStarted();
      }

      @Override
      public void close() throws Exception {
         if (process != null) {
            kill();
         }
         if (isUp()) {
            // A case that is over hands nothing on.
            server.fail(false);
         }
      }

      Client client() throws Exception {
         return new Client(ports[number]);
      }

      void queue(String address, String name, RoutingType type, String filter) throws Exception {
         try (Client client = client()) {
            client.session.createQueue(QueueConfiguration.of(name).setAddress(address).setRoutingType(type)
               .setDurable(true).setFilterString(filter));
         }
      }

      void delete(String queue) throws Exception {
         try (Client client = client()) {
            client.session.deleteQueue(queue);
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

      void send(String address, int from, int upto, BiConsumer<Integer, ClientMessage> more) throws Exception {
         try (Client client = client()) {
            for (int number = from; number < upto; number++) {
               ClientMessage message = client.session.createMessage(true).putIntProperty("n", number);
               more.accept(number, message);
               client.producer.send(address, message);
            }
         }
      }

      /** What the sender of one message hears. */
      String verdict(String address, int number, String id) throws Exception {
         try {
            send(address, number, number + 1, (sent, message) -> {
               if (id != null) {
                  message.putStringProperty("_AMQ_DUPL_ID", id);
               }
            });
            return "stored";
         } catch (ActiveMQException refused) {
            return "refused";
         }
      }

      /** Messages in a queue, those of readers included; 0 where there is none, or no broker. */
      long count(String queue) {
         if (server != null) {
            Queue found = server.isStarted() ? server.locateQueue(queue) : null;
            return found == null ? 0 : found.getMessageCount();
         }
         if (process == null) {
            return 0;
         }
         try (Client client = client()) {
            ClientSession.QueueQuery found = client.session.queueQuery(SimpleString.of(queue));
            return found.isExists() ? found.getMessageCount() : 0;
         } catch (Exception error) {
            throw new IllegalStateException(error);
         }
      }

      List<Integer> read(String queue) throws Exception {
         return read(queue, Integer.MAX_VALUE);
      }

      /** What waits in a queue, so many at most, acknowledged. */
      List<Integer> read(String queue, int most) throws Exception {
         List<Integer> read = new ArrayList<>();
         try (Client client = client(); ClientConsumer consumer = client.session.createConsumer(queue)) {
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

      // What only a broker in this process shows.

      ClusterConnection connection() {
         return server.getClusterManager().getClusterConnection("cluster");
      }

      int members() {
         return connection().getNodes().size();
      }

      long acknowledged() {
         return connection().getMetrics().getMessagesAcknowledged();
      }

      /** Where messages wait for another broker. */
      Queue link(Broker peer) {
         return server.locateQueue(STORE_AND_FORWARD + peer.nodeId);
      }

      long parked(Broker peer) {
         Queue link = isUp() ? link(peer) : null;
         return link == null ? 0 : link.getMessageCount();
      }

      List<RemoteQueueBinding> places(String address) {
         try {
            List<RemoteQueueBinding> found = new ArrayList<>();
            for (Binding binding : server.getPostOffice().getDirectBindings(SimpleString.of(address))) {
               if (binding instanceof RemoteQueueBinding place) {
                  found.add(place);
               }
            }
            return found;
         } catch (Exception error) {
            throw new IllegalStateException(error);
         }
      }

      void awaitPlaces(String address, int count) throws InterruptedException {
         await(count + " places of " + address, () -> places(address).size() == count);
      }

      /** Return once this broker knows a queue of another with so many readers; its own it knows anyway. */
      void awaitPlace(String address, String queue, int at, int readers) throws InterruptedException {
         if (at == number) {
            return;
         }
         await("n" + number + " knows " + queue + " at n" + at + " with " + readers + " readers", () ->
            places(address).stream().anyMatch(place -> place.getRoutingName().toString().equals(queue)
               && place.isConnected() && place.consumerCount() == readers
               && place.getQueue().getName().toString().endsWith(cluster.of(at).nodeId)));
      }

      void awaitUnreachable(Broker peer) throws InterruptedException {
         await("the link to the killed broker is down", () -> Arrays.stream(connection().getBridges())
            .noneMatch(bridge -> bridge.getName().toString().contains(peer.nodeId) && bridge.isConnected()));
      }
   }

   static final class Client implements AutoCloseable {
      final ServerLocator locator;
      final ClientSessionFactory factory;
      final ClientSession session;
      final ClientProducer producer;
      boolean closed;

      Client(int port) throws Exception {
         locator = ActiveMQClient.createServerLocator(
            "tcp://127.0.0.1:" + port + "?useTopologyForLoadBalancing=false").setAckBatchSize(0)
            .setReconnectAttempts(0);
         factory = locator.createSessionFactory();
         session = factory.createSession(true, true, 0);
         producer = session.createProducer();
         session.start();
      }

      /** A reader that takes none. */
      void idle(String queue) throws ActiveMQException {
         session.createConsumer(SimpleString.of(queue), null, 0, -1, false);
      }

      /** A reader that acknowledges whatever comes; the list of its numbers. */
      List<Integer> listen(String queue) throws ActiveMQException {
         List<Integer> numbers = Collections.synchronizedList(new ArrayList<>());
         session.createConsumer(queue).setMessageHandler(message -> {
            try {
               message.acknowledge();
               numbers.add(message.getIntProperty("n"));
            } catch (ActiveMQException error) {
               throw new IllegalStateException(error);
            }
         });
         return numbers;
      }

      @Override
      public void close() throws ActiveMQException {
         if (!closed) {
            closed = true;
            session.close();
            factory.close();
            locator.close();
         }
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
}
