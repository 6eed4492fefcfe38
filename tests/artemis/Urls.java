import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import org.apache.activemq.artemis.core.config.ConfigurationUtils;

/** Says what Artemis makes of each URL of a file: host, port, and whether it uses TLS; or that it refuses it. */
public class Urls {

   public static void main(String[] arguments) throws Exception {
      for (String line : Files.readAllLines(Path.of(arguments[0]))) {
         System.out.println(answer(line.replace("\\n", "\n").replace("\\t", "\t")));
      }
   }

   private static String answer(String url) {
      try {
         Map<String, Object> found = ConfigurationUtils.parseConnectorURI("n", url).get(0).getParams();
         boolean encrypted = Boolean.parseBoolean(String.valueOf(found.get("sslEnabled")));
         return found.get("host") + " " + found.get("port") + " " + encrypted;
      } catch (Exception refused) {
         return "refused";
      }
   }
}
