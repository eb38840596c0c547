package dither.peers;

import java.io.Serializable;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.stream.Stream;

/**
 * A metric of yes or no answers by randomized response, as it is defined: what its batches must
 * say.
 *
 * @param name its name in a batch
 * @param revision of its definition
 * @param levels how many privacy levels it has
 * @param paneMs the width of its panes
 * @param latenessMs how long a pane stays open after its end
 */
record Metric(byte[] name, int revision, int levels, long paneMs, long latenessMs)
        implements Serializable {

    /** Reads metrics from a command line: {@code NAME:REVISION:LEVELS:PANE_MS:LATENESS_MS,...}. */
    static List<Metric> parseAll(String told) {
        return Stream.of(told.split(",")).map(Metric::parse).toList();
    }

    private static Metric parse(String told) {
        String[] facts = told.split(":");
        return new Metric(
                facts[0].getBytes(StandardCharsets.UTF_8),
                Integer.parseUnsignedInt(facts[1]),
                Integer.parseInt(facts[2]),
                Long.parseLong(facts[3]),
                Long.parseLong(facts[4]));
    }

    /** Returns where the pane of an event begins. */
    long paneOf(long timeMs) {
        return timeMs - timeMs % paneMs;
    }

    /** Returns whether a pane is over when event time has come so far. */
    boolean isClosed(long pane, long reachedMs) {
        return pane + paneMs + latenessMs <= reachedMs;
    }

    /** Returns the row of a pane without reports; see {@link Batch#addTo}. */
    long[] empty() {
        return new long[2 * levels + 1];
    }
}
