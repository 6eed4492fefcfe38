// The main program of each set of cases. Arguments: a directory, then names of cases (none: all). A line of Result.java
// out for each case that ended; what failed goes to stderr, and the exit code is the number of those.

import java.nio.file.Path;
import java.util.Collection;
import java.util.List;

final class Program {

   interface Case {
      void run(String name, Path directory, Result result) throws Exception;
   }

   static void run(String[] arguments, Collection<String> all, Case one) {
      List<String> names = List.of(arguments).subList(1, arguments.length);
      int failed = 0;
      for (String name : names.isEmpty() ? all : names) {
         Result result = new Result(name);
         try {
            one.run(name, Path.of(arguments[0], name), result);
            System.out.println(result.line());
         } catch (Throwable error) {
            System.err.println(name + ": " + result.line());
            error.printStackTrace();
            failed++;
         }
      }
      // Threads of a broker that could not be stopped do not keep it.
      System.exit(failed);
   }

   private Program() {
   }
}
