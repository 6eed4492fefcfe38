// Asks Artemis's own FilterImpl. A JSON line in: {"filter", "messages": [{"properties", "types", "system"}]}.
// A JSON line out: a list with true or false for each message; ["error", words] where the condition is refused.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.StringReader;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.Map;

import org.apache.activemq.artemis.api.core.SimpleString;
import org.apache.activemq.artemis.core.filter.Filter;
import org.apache.activemq.artemis.core.filter.impl.FilterImpl;
import org.apache.activemq.artemis.core.message.impl.CoreMessage;
import org.apache.activemq.artemis.json.JsonArrayBuilder;
import org.apache.activemq.artemis.json.JsonNumber;
import org.apache.activemq.artemis.json.JsonObject;
import org.apache.activemq.artemis.json.JsonString;
import org.apache.activemq.artemis.json.JsonValue;
import org.apache.activemq.artemis.utils.JsonLoader;
import org.apache.activemq.artemis.utils.UUID;

public class Oracle {

   public static void main(String[] arguments) throws Exception {
      BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
      PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
      for (String line = in.readLine(); line != null; line = in.readLine()) {
         out.println(answers(JsonLoader.readObject(new StringReader(line))));
      }
      out.flush();
   }

   private static String answers(JsonObject question) throws Exception {
      JsonArrayBuilder answers = JsonLoader.createArrayBuilder();
      Filter filter;
      try {
         filter = FilterImpl.createFilter(question.getString("filter"));
      } catch (Throwable refused) {
         Throwable cause = refused;
         while (cause.getCause() != null) {
            cause = cause.getCause();
         }
         return answers.add("error").add(String.valueOf(cause)).build().toString();
      }
      for (JsonValue message : question.getJsonArray("messages")) {
         answers.add(filter == null || filter.match(message((JsonObject) message)));
      }
      return answers.build().toString();
   }

   private static CoreMessage message(JsonObject described) {
      CoreMessage message = new CoreMessage(1, 256);
      message.setAddress(SimpleString.of("a"));
      message.setPriority((byte) 4).setDurable(true).setTimestamp(1700000000000L);
      JsonObject types = described.getJsonObject("types");
      for (Map.Entry<String, JsonValue> property : described.getJsonObject("properties").entrySet()) {
         SimpleString name = SimpleString.of(property.getKey());
         JsonValue type = types == null ? null : types.get(property.getKey());
         put(message, name, property.getValue(), type == null ? "" : ((JsonString) type).getString());
      }
      JsonObject system = described.getJsonObject("system");
      for (Map.Entry<String, JsonValue> field : system.entrySet()) {
         set(message, field.getKey(), field.getValue());
      }
      if (system.containsKey("body")) {
         message.setType((byte) 3);
         message.getBodyBuffer().writeNullableSimpleString(SimpleString.of(system.getString("body")));
      }
      return message;
   }

   private static void put(CoreMessage message, SimpleString name, JsonValue value, String type) {
      if (value == JsonValue.NULL) {
         message.putStringProperty(name, (SimpleString) null);
      } else if (value == JsonValue.TRUE || value == JsonValue.FALSE) {
         message.putBooleanProperty(name, value == JsonValue.TRUE);
      } else {
         String text = value instanceof JsonString written ? written.getString() : value.toString();
         switch (type) {
            case "byte" -> message.putByteProperty(name, Byte.parseByte(text));
            case "short" -> message.putShortProperty(name, Short.parseShort(text));
            case "int" -> message.putIntProperty(name, Integer.parseInt(text));
            case "long" -> message.putLongProperty(name, Long.parseLong(text));
            case "float" -> message.putFloatProperty(name, Float.parseFloat(text));
            case "double" -> message.putDoubleProperty(name, Double.parseDouble(text));
            case "bytes" -> message.putBytesProperty(name, HexFormat.of().parseHex(text));
            case "char" -> message.putCharProperty(name, text.charAt(0));
            default -> message.putStringProperty(name, SimpleString.of(text));
         }
      }
   }

   private static void set(CoreMessage message, String field, JsonValue value) {
      switch (field) {
         case "priority" -> message.setPriority((byte) ((JsonNumber) value).intValue());
         case "durable" -> message.setDurable(value == JsonValue.TRUE);
         case "timestamp" -> message.setTimestamp(((JsonNumber) value).longValue());
         case "expiration" -> message.setExpiration(((JsonNumber) value).longValue());
         case "address" -> message.setAddress(SimpleString.of(((JsonString) value).getString()));
         case "groupID" -> message.setGroupID(((JsonString) value).getString());
         case "userID" -> {
            java.util.UUID id = java.util.UUID.fromString(((JsonString) value).getString());
            byte[] bytes = java.nio.ByteBuffer.allocate(16).putLong(id.getMostSignificantBits())
               .putLong(id.getLeastSignificantBits()).array();
            message.setUserID(new UUID(UUID.TYPE_TIME_BASED, bytes));
         }
         default -> {
         }
      }
   }
}
