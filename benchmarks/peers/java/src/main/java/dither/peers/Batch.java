package dither.peers;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;

/**
 * A ReportBatch of producers/wire/reports.proto, checked: places in the message's bytes.
 *
 * <p>Public fields and a constructor without arguments are what Flink sends on in its own format.
 */
public final class Batch {
    private static final int ID_BYTES = 16;
    private static final int VARINT = 0;
    private static final int FIXED_64 = 1;
    private static final int BYTES = 2;
    private static final int FIXED_32 = 5;

    /** Which of the metrics it is of. */
    public int metric = -1;

    /** Its event time. */
    public long timeMs;

    /** The message. */
    public byte[] data;

    /** Where its id begins, which is sixteen bytes long. */
    public int idAt = -1;

    /** Where a byte for each report begins with its level. */
    public int levelsAt;

    /** Where a byte for each report begins with its answer, 0 or 1. */
    public int valuesAt;

    /** How many reports it has. */
    public int size;

    private transient int at;

    /** Makes an empty one. */
    public Batch() {}

    /** Returns the batch that a message is, or null if none of the metrics counts it. */
    static Batch parse(byte[] data, List<Metric> metrics) {
        if (data == null) {
            return null;
        }
        Batch batch = new Batch();
        batch.data = data;
        try {
            return batch.read(metrics) ? batch : null;
        } catch (IndexOutOfBoundsException cutShort) {
            return null;
        }
    }

    private boolean read(List<Metric> metrics) {
        int revision = 0;
        int values = 0;
        boolean counts = true;
        while (at < data.length) {
            int tag = (int) varint();
            int kind = tag & 7;
            long number = kind == VARINT ? varint() : 0;
            int length =
                    kind == BYTES
                            ? (int) varint()
                            : kind == FIXED_64 ? 8 : kind == FIXED_32 ? 4 : 0;
            if (length < 0
                    || length > data.length - at
                    || kind > FIXED_32
                    || kind == 3
                    || kind == 4) {
                return false;
            }
            switch (tag) {
                case 1 << 3 | BYTES -> metric = find(metrics, length);
                case 2 << 3 | VARINT -> revision = (int) number;
                case 3 << 3 | BYTES -> idAt = length == ID_BYTES ? at : -1;
                case 4 << 3 | VARINT -> timeMs = number;
                case 5 << 3 | BYTES -> {
                    levelsAt = at;
                    size = length;
                }
                case 6 << 3 | BYTES -> {
                    valuesAt = at;
                    values = length;
                }
                case 7 << 3 | VARINT -> counts &= number == 0;
                default -> {}
            }
            at += length;
        }
        return counts
                && metric >= 0
                && idAt >= 0
                && timeMs > 0
                && size > 0
                && size == values
                && revision == metrics.get(metric).revision()
                && allBelow(levelsAt, metrics.get(metric).levels())
                && allBelow(valuesAt, 2);
    }

    private long varint() {
        long value = 0;
        for (int shift = 0; shift < 64; shift += 7) {
            byte next = data[at++];
            value |= (long) (next & 0x7f) << shift;
            if (next >= 0) {
                return value;
            }
        }
        throw new IndexOutOfBoundsException("a number of more than 64 bits");
    }

    private int find(List<Metric> metrics, int length) {
        for (int number = 0; number < metrics.size(); number++) {
            byte[] name = metrics.get(number).name();
            if (Arrays.equals(name, 0, name.length, data, at, at + length)) {
                return number;
            }
        }
        return -1;
    }

    private boolean allBelow(int from, int limit) {
        int highest = 0;
        for (int place = from; place < from + size; place++) {
            highest = Math.max(highest, data[place] & 0xff);
        }
        return highest < limit;
    }

    /**
     * Adds its reports to a pane's row: of each level reports and ones; those of duplicates come
     * last.
     */
    void addTo(long[] row) {
        for (int number = 0; number < size; number++) {
            int level = data[levelsAt + number];
            row[2 * level]++;
            row[2 * level + 1] += data[valuesAt + number];
        }
    }

    /** Returns its id. */
    byte[] id() {
        return Arrays.copyOfRange(data, idAt, idAt + ID_BYTES);
    }

    /** Returns a hash of its id. */
    int idHash() {
        int hash = 0;
        for (int place = idAt; place < idAt + ID_BYTES; place++) {
            hash = 31 * hash + data[place];
        }
        return hash ^ hash >>> 16;
    }

    /** Returns its id, a character for each byte: a string has equality, and is never copied. */
    String idText() {
        return new String(data, idAt, ID_BYTES, StandardCharsets.ISO_8859_1);
    }
}
