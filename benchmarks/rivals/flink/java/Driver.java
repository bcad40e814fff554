import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Properties;
import java.util.stream.Stream;

import org.apache.flink.configuration.Configuration;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.StatementSet;
import org.apache.flink.table.api.TableDescriptor;
import org.apache.flink.table.api.TableEnvironment;

/**
 * Runs statement sets one after the other in this JVM, which is the whole cluster.
 *
 * <p>Arguments: a folder with {@code flink.properties} (Flink's configuration) and {@code
 * tables/*.sql}; the connector of all sinks, {@code blackhole} or {@code changes}; and for each run
 * the name of a folder there with the set's queries ({@code *.sql}). Changes are written to {@code
 * answers/SET/QUERY}. Prints {@code used} and, with tabs between them, the usage of this process
 * before the first run and after each: CPU seconds, seconds since its start, and the greatest
 * resident memory in bytes, with spaces between them.
 */
public final class Driver {
    private Driver() {}

    public static void main(String[] arguments) throws Exception {
        Path home = Path.of(arguments[0]);
        Configuration configuration = configuration(home.resolve("flink.properties"));
        StringBuilder line = new StringBuilder("used\t").append(usage());
        for (String set : List.of(arguments).subList(2, arguments.length)) {
            run(home, set, arguments[1], configuration);
            line.append('\t').append(usage());
        }
        System.out.println(line);
        System.exit(0);
    }

    private static void run(Path home, String set, String connector, Configuration configuration)
            throws Exception {
        TableEnvironment environment =
                TableEnvironment.create(
                        EnvironmentSettings.newInstance()
                                .inStreamingMode()
                                .withConfiguration(configuration)
                                .build());
        for (Path file : files(home.resolve("tables"))) {
            environment.executeSql(Files.readString(file));
        }
        StatementSet statements = environment.createStatementSet();
        for (Path file : files(home.resolve(set))) {
            String query = file.getFileName().toString().replace(".sql", "");
            TableDescriptor.Builder sink = TableDescriptor.forConnector(connector);
            if (connector.equals("changes")) {
                sink.option("path", home.resolve("answers").resolve(set).resolve(query).toString());
            }
            statements.addInsert(sink.build(), environment.sqlQuery(Files.readString(file)));
        }
        statements.execute().await();
    }

    private static Configuration configuration(Path file) throws Exception {
        Properties read = new Properties();
        try (var reader = Files.newBufferedReader(file)) {
            read.load(reader);
        }
        Configuration found = new Configuration();
        read.stringPropertyNames().forEach(name -> found.setString(name, read.getProperty(name)));
        return found;
    }

    private static List<Path> files(Path folder) throws Exception {
        try (Stream<Path> found = Files.list(folder)) {
            return found.sorted().toList();
        }
    }

    private static String usage() throws Exception {
        var system =
                (com.sun.management.OperatingSystemMXBean)
                        ManagementFactory.getOperatingSystemMXBean();
        double seconds = ManagementFactory.getRuntimeMXBean().getUptime() / 1e3;
        return system.getProcessCpuTime() / 1e9 + " " + seconds + " " + peakBytes();
    }

    /** The high-water mark of resident memory; 0 where the system has no such file. */
    private static long peakBytes() throws Exception {
        Path status = Path.of("/proc/self/status");
        if (!Files.exists(status)) {
            return 0;
        }
        for (String line : Files.readAllLines(status)) {
            if (line.startsWith("VmHWM:")) {
                return 1024 * Long.parseLong(line.replaceAll("[^0-9]", ""));
            }
        }
        return 0;
    }
}
