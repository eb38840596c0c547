package dither.peers;

import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.concurrent.atomic.LongAdder;
import java.util.stream.Collectors;
import java.util.stream.LongStream;

/**
 * What an engine is told, and how it tells how far it has come.
 *
 * @param servers addresses of Kafka's brokers
 * @param topic which is read from its beginning
 * @param messages how many the topic has
 * @param parallelism how many threads count
 * @param store where state is kept: {@code memory} or {@code rocksdb}
 * @param folder where the engine may write
 * @param metrics which are counted
 */
record Job(
        String servers,
        String topic,
        long messages,
        int parallelism,
        String store,
        String folder,
        List<Metric> metrics) {

    /** Messages that were looked at. */
    static final LongAdder COUNTED = new LongAdder();

    /** Messages among them that no metric counts, or that came too late. */
    static final LongAdder REFUSED = new LongAdder();

    private static final long TELL_MS = 200;

    static Job parse(String[] told) {
        return new Job(
                told[0],
                told[1],
                Long.parseLong(told[2]),
                Integer.parseInt(told[3]),
                told[4],
                told[5],
                Metric.parseAll(told[6]));
    }

    boolean inMemory() {
        return store.equals("memory");
    }

    /** Has a thread print how many messages were counted, as long as the process lives. */
    static void tell() {
        Thread thread =
                new Thread(
                        () -> {
                            while (true) {
                                System.out.println("counted " + COUNTED.sum());
                                try {
                                    Thread.sleep(TELL_MS);
                                } catch (InterruptedException ended) {
                                    return;
                                }
                            }
                        },
                        "progress");
        thread.setDaemon(true);
        thread.start();
    }

    /** Prints what a pane has, or a part of it: whoever reads adds up. */
    void print(int metric, long pane, long[] row) {
        String name = new String(metrics.get(metric).name(), StandardCharsets.UTF_8);
        String cells = LongStream.of(row).mapToObj(Long::toString).collect(Collectors.joining(" "));
        System.out.println("pane " + name + " " + pane + " " + cells);
    }

    /** Prints that all was printed. */
    static void end() {
        System.out.println("end " + REFUSED.sum());
        System.out.flush();
    }
}
