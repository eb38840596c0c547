package dither.peers;

import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.processor.TimestampExtractor;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.QueryableStoreTypes;
import org.apache.kafka.streams.state.ReadOnlyKeyValueStore;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.WindowStore;

import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import java.util.UUID;
import java.util.stream.LongStream;

/**
 * Kafka Streams: ids in a window store, sums in a key-value store, both logged, exactly once.
 *
 * <p>The store of ids forgets those of a pane when it is closed. The sums of a pane are written to
 * their log once a commit, as a cache is before their store.
 */
public final class WithKafkaStreams {
    private static final String IDS = "ids";
    private static final String SUMS = "sums";
    private static final StoreQueryParameters<ReadOnlyKeyValueStore<byte[], byte[]>> SUMS_QUERY =
            StoreQueryParameters.fromNameAndType(SUMS, QueryableStoreTypes.keyValueStore());
    private static final byte[] SEEN = {1};
    private static final long LOOK_MS = 50;
    private static final int WARM_UP_QUERIES = 50_000;
    private static final int QUERIES = 100_000;

    private WithKafkaStreams() {}

    /** Counts a topic to its end. */
    public static void main(String[] arguments) throws Exception {
        Job job = Job.parse(arguments);
        try (KafkaStreams streams = new KafkaStreams(topology(job), settings(job))) {
            streams.setUncaughtExceptionHandler(
                    error -> {
                        error.printStackTrace();
                        Runtime.getRuntime().halt(1);
                        return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
                    });
            streams.start();
            Job.tell();
            while (Job.COUNTED.sum() < job.messages()) {
                Thread.sleep(LOOK_MS);
            }
            print(job, streams);
            printQueryTime(streams);
        }
        Job.end(); // closing has committed
    }

    private static Properties settings(Job job) {
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, UUID.randomUUID().toString());
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, job.servers());
        settings.put(StreamsConfig.STATE_DIR_CONFIG, job.folder());
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, job.parallelism());
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 1_000);
        settings.put(StreamsConfig.BUFFERED_RECORDS_PER_PARTITION_CONFIG, 10_000);
        settings.put(StreamsConfig.consumerPrefix(ConsumerConfig.MAX_POLL_RECORDS_CONFIG), 10_000);
        settings.put(
                StreamsConfig.consumerPrefix(ConsumerConfig.MAX_PARTITION_FETCH_BYTES_CONFIG),
                8_000_000);
        settings.put(StreamsConfig.producerPrefix(ProducerConfig.BATCH_SIZE_CONFIG), 256_000);
        return settings;
    }

    private static Topology topology(Job job) {
        Metric widest = job.metrics().get(0);
        Duration pane = Duration.ofMillis(widest.paneMs());
        Duration kept = pane.plusMillis(widest.latenessMs());
        return new Topology()
                .addSource(
                        Topology.AutoOffsetReset.EARLIEST,
                        "reports",
                        new EventTime(),
                        new ByteArrayDeserializer(),
                        (topic, data) -> Batch.parse(data, job.metrics()),
                        job.topic())
                .addProcessor("count", () -> new Count(job.metrics()), "reports")
                .addStateStore(
                        Stores.windowStoreBuilder(
                                        job.inMemory()
                                                ? Stores.inMemoryWindowStore(IDS, kept, pane, false)
                                                : Stores.persistentWindowStore(
                                                        IDS, kept, pane, false),
                                        Serdes.ByteArray(),
                                        Serdes.ByteArray())
                                .withCachingDisabled(),
                        "count")
                .addStateStore(
                        Stores.keyValueStoreBuilder(
                                        job.inMemory()
                                                ? Stores.inMemoryKeyValueStore(SUMS)
                                                : Stores.persistentKeyValueStore(SUMS),
                                        Serdes.ByteArray(),
                                        Serdes.ByteArray())
                                .withCachingEnabled(),
                        "count");
    }

    private static void print(Job job, KafkaStreams streams) {
        try (KeyValueIterator<byte[], byte[]> rows = streams.store(SUMS_QUERY).all()) {
            rows.forEachRemaining(
                    row -> {
                        ByteBuffer key = ByteBuffer.wrap(row.key);
                        job.print(key.get(), key.getLong(), numbers(row.value));
                    });
        }
    }

    /** Prints the processor time of a query of one pane: its sums of all partitions, added up. */
    private static void printQueryTime(KafkaStreams streams) {
        List<ReadOnlyKeyValueStore<byte[], byte[]>> partitions =
                streams.allLocalStorePartitionLags().get(SUMS).keySet().stream()
                        .map(partition -> SUMS_QUERY.withPartition(partition))
                        .map(streams::store)
                        .toList();
        byte[] key;
        try (KeyValueIterator<byte[], byte[]> rows = partitions.get(0).all()) {
            key = rows.next().key;
        }
        sumQueries(partitions, key, WARM_UP_QUERIES);
        ThreadMXBean threads = ManagementFactory.getThreadMXBean();
        long began = threads.getCurrentThreadCpuTime();
        long sum = sumQueries(partitions, key, QUERIES);
        long spent = threads.getCurrentThreadCpuTime() - began;
        System.out.println("query " + spent / 1e9 / QUERIES + " " + sum);
    }

    private static long sumQueries(
            List<ReadOnlyKeyValueStore<byte[], byte[]>> partitions, byte[] key, int queries) {
        long sum = 0;
        for (int query = 0; query < queries; query++) {
            for (var partition : partitions) {
                byte[] stored = partition.get(key);
                sum += stored == null ? 0 : LongStream.of(numbers(stored)).sum();
            }
        }
        return sum;
    }

    private static byte[] bytes(long[] row) {
        ByteBuffer buffer = ByteBuffer.allocate(Long.BYTES * row.length);
        buffer.asLongBuffer().put(row);
        return buffer.array();
    }

    private static long[] numbers(byte[] stored) {
        long[] row = new long[stored.length / Long.BYTES];
        ByteBuffer.wrap(stored).asLongBuffer().get(row);
        return row;
    }

    /** Event time is what a batch says it is: Kafka Streams keeps how far it has come. */
    private static final class EventTime implements TimestampExtractor {
        @Override
        public long extract(ConsumerRecord<Object, Object> message, long reachedMs) {
            return message.value() instanceof Batch batch ? batch.timeMs : Math.max(0, reachedMs);
        }
    }

    private static final class Count implements Processor<byte[], Batch, Void, Void> {
        private final List<Metric> metrics;
        private ProcessorContext<Void, Void> context;
        private WindowStore<byte[], byte[]> ids;
        private KeyValueStore<byte[], byte[]> sums;

        Count(List<Metric> metrics) {
            this.metrics = metrics;
        }

        @Override
        public void init(ProcessorContext<Void, Void> context) {
            this.context = context;
            ids = context.getStateStore(IDS);
            sums = context.getStateStore(SUMS);
        }

        @Override
        public void process(Record<byte[], Batch> message) {
            count(message.value());
            Job.COUNTED.increment();
        }

        private void count(Batch batch) {
            Metric metric = batch == null ? null : metrics.get(batch.metric);
            long pane = batch == null ? 0 : metric.paneOf(batch.timeMs);
            if (batch == null || metric.isClosed(pane, context.currentStreamTimeMs())) {
                Job.REFUSED.increment();
                return;
            }
            byte[] key = ByteBuffer.allocate(9).put((byte) batch.metric).putLong(pane).array();
            byte[] stored = sums.get(key);
            long[] row = stored == null ? metric.empty() : numbers(stored);
            byte[] id = ByteBuffer.allocate(17).put((byte) batch.metric).put(batch.id()).array();
            if (ids.fetch(id, pane) == null) {
                ids.put(id, SEEN, pane);
                batch.addTo(row);
            } else {
                row[row.length - 1] += batch.size;
            }
            sums.put(key, bytes(row));
        }
    }
}
