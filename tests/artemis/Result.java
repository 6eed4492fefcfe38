// What a case has shown: "seen" is compared with this project, "notes" is only shown.

import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.Map;

import org.apache.activemq.artemis.json.JsonArrayBuilder;
import org.apache.activemq.artemis.json.JsonObjectBuilder;
import org.apache.activemq.artemis.utils.JsonLoader;

final class Result {
   final String name;
   final Map<String, Object> seen = new LinkedHashMap<>();
   final Map<String, Object> notes = new LinkedHashMap<>();

   Result(String name) {
      this.name = name;
   }

   void seen(String what, Object value) {
      seen.put(what, value);
   }

   void note(String what, Object value) {
      notes.put(what, value);
   }

   /** For another attempt. */
   void clear() {
      seen.clear();
      notes.clear();
   }

   String line() {
      return JsonLoader.createObjectBuilder().add("case", name).add("seen", object(seen))
         .add("notes", object(notes)).build().toString();
   }

   private static JsonObjectBuilder object(Map<String, Object> values) {
      JsonObjectBuilder object = JsonLoader.createObjectBuilder();
      values.forEach((name, value) -> {
         if (value instanceof Boolean truth) {
            object.add(name, truth.booleanValue());
         } else if (value instanceof Number number) {
            object.add(name, number.longValue());
         } else if (value instanceof Collection<?> items) {
            JsonArrayBuilder list = JsonLoader.createArrayBuilder();
            for (Object item : items) {
               if (item instanceof Integer number) {
                  list.add(number);
               } else {
                  list.add(String.valueOf(item));
               }
            }
            object.add(name, list);
         } else {
            object.add(name, String.valueOf(value));
         }
      });
      return object;
   }
}
