// The transformer of originals/edge.xml; tests.harness.transformers.stamp stands for it here.

import java.util.Map;

import org.apache.activemq.artemis.api.core.Message;
import org.apache.activemq.artemis.core.server.transformer.Transformer;

public class Stamp implements Transformer {

   private String mark;

   @Override
   public void init(Map<String, String> properties) {
      mark = properties.get("mark");
   }

   @Override
   public Message transform(Message message) {
      message.putStringProperty("mark", mark);
      return message;
   }
}
