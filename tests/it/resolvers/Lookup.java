// The same by Java.
import java.net.InetAddress;
import java.net.UnknownHostException;

public class Lookup {
    public static void main(String[] names) {
        for (String name : names) {
            long begun = System.nanoTime();
            StringBuilder found = new StringBuilder();
            String code = "0";
            try {
                for (InetAddress one : InetAddress.getAllByName(name))
                    found.append(' ').append(one.getHostAddress().replaceAll("(:0)+:", "::"));
            } catch (UnknownHostException error) {
                code = "unknown";
            }
            System.out.println(name + " " + code + " " + (System.nanoTime() - begun) / 1000000 + found);
        }
    }
}
