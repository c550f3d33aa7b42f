import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import org.opensearch.common.logging.LogConfigurator;
import org.opensearch.common.settings.Settings;
import org.opensearch.env.Environment;
import org.opensearch.http.HttpServerTransport;
import org.opensearch.node.InternalSettingsPreparer;
import org.opensearch.node.Node;
import org.opensearch.transport.Netty4Plugin;

/**
 * OpenSearch with one node on a free port of 127.0.0.1, for tests. Its data is in the directory that the argument names.
 * It prints `PORT` and the port, and ends when its standard input does: so it never outlives the test program, however
 * that ends.
 */
public class Server {
    /** A node with the HTTP transport. The constructor of its class is only for subclasses. */
    private static final class OneNode extends Node {
        OneNode(Environment environment) {
            super(environment, List.of(Netty4Plugin.class), false);
        }
    }

    public static void main(String[] arguments) throws Exception {
        Path home = Path.of(arguments[0]);
        Files.createDirectories(home.resolve("config"));
        Settings settings = Settings.builder()
            .put("path.home", home)
            .put("cluster.name", "rapidbyte-tests")
            .put("node.name", "tests")
            .put("discovery.type", "single-node")
            .put("network.host", "127.0.0.1")
            .put("http.port", "0")
            .put("transport.port", "0")
            .put("http.type", "netty4")
            .put("transport.type", "netty4")
            // Tests run where disks are nearly full.
            .put("cluster.routing.allocation.disk.threshold_enabled", false)
            // Tests make many small indices.
            .put("cluster.max_shards_per_node", 20000)
            .build();
        LogConfigurator.registerErrorListener();
        Environment environment = InternalSettingsPreparer.prepareEnvironment(settings, Map.of(), null, () -> "tests");
        Node node = new OneNode(environment).start();
        HttpServerTransport http = node.injector().getInstance(HttpServerTransport.class);
        System.out.println("PORT " + http.boundAddress().publishAddress().getPort());
        System.out.flush();
        while (System.in.read() >= 0) {
            // Nothing is said to it.
        }
        System.exit(0);
    }
}
