import de.bwaldvogel.mongo.MongoServer;
import de.bwaldvogel.mongo.ServerVersion;
import de.bwaldvogel.mongo.backend.memory.MemoryBackend;
import java.io.FileInputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyFactory;
import java.security.PrivateKey;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.Base64;

/**
 * mongo-java-server on a free port of 127.0.0.1, for tests. It prints `PORT` and the port, and ends when its standard
 * input does: so it never outlives the test program, however that ends. With a certificate and a key (PEM, PKCS #8,
 * ECDSA) it speaks TLS.
 */
public class Server {
    public static void main(String[] arguments) throws Exception {
        MongoServer server = new MongoServer(new MemoryBackend().version(ServerVersion.MONGO_5_0));
        if (arguments.length == 2) {
            X509Certificate certificate;
            try (FileInputStream file = new FileInputStream(arguments[0])) {
                certificate = (X509Certificate) CertificateFactory.getInstance("X.509").generateCertificate(file);
            }
            String pem = Files.readString(Path.of(arguments[1])).replaceAll("-----[A-Z ]+-----|\\s", "");
            byte[] key = Base64.getDecoder().decode(pem);
            PrivateKey secret = KeyFactory.getInstance("EC").generatePrivate(new PKCS8EncodedKeySpec(key));
            server.enableSsl(secret, null, certificate);
        }
        server.bind("127.0.0.1", 0);
        System.out.println("PORT " + server.getLocalAddress().getPort());
        System.out.flush();
        while (System.in.read() >= 0) {
            // Nothing is said to it.
        }
        server.shutdownNow();
        System.exit(0);
    }
}
