package dither.peers;

import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeHint;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.configuration.CheckpointingOptions;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.MemorySize;
import org.apache.flink.configuration.StateBackendOptions;
import org.apache.flink.configuration.TaskManagerOptions;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.connector.kafka.source.reader.deserializer.KafkaRecordDeserializationSchema;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.DataStreamUtils;
import org.apache.flink.streaming.api.datastream.KeyedStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.CloseableIterator;
import org.apache.flink.util.Collector;
import org.apache.kafka.clients.consumer.ConsumerRecord;

import java.nio.file.Path;
import java.time.Duration;
import java.util.List;

/**
 * Flink: ids and sums as keyed state of a bucket of a pane, checkpoints each second, exactly once.
 *
 * <p>A pane's ids are spread over buckets by their hash: a key for each id would need a timer for
 * each, and one key for the pane would leave nothing to spread over threads. When event time has
 * passed the pane, each bucket hands on its part of the sums.
 */
public final class WithFlink {
    private static final int BUCKETS = 1 << 10;

    private WithFlink() {}

    /** Counts a topic to its end. */
    public static void main(String[] arguments) throws Exception {
        Job job = Job.parse(arguments);
        var env = StreamExecutionEnvironment.createLocalEnvironment(settings(job));
        env.setParallelism(job.parallelism());
        env.enableCheckpointing(1_000); // exactly once, by default
        env.getConfig().enableObjectReuse();
        Job.tell();
        DataStream<Tuple3<Integer, Long, long[]>> panes =
                keyed(job, batches(job, env)).process(new Count(job.metrics()));
        try (CloseableIterator<Tuple3<Integer, Long, long[]>> rows = panes.executeAndCollect()) {
            rows.forEachRemaining(row -> job.print(row.f0, row.f1, row.f2));
        }
        Job.end();
        System.exit(0); // the cluster's threads would live on
    }

    private static Configuration settings(Job job) {
        Configuration settings = new Configuration();
        settings.set(StateBackendOptions.STATE_BACKEND, job.inMemory() ? "hashmap" : "rocksdb");
        settings.set(CheckpointingOptions.INCREMENTAL_CHECKPOINTS, true); // RocksDB alone can
        settings.set(CheckpointingOptions.CHECKPOINT_STORAGE, "filesystem");
        settings.set(
                CheckpointingOptions.CHECKPOINTS_DIRECTORY,
                Path.of(job.folder()).toUri().toString());
        settings.set(TaskManagerOptions.MANAGED_MEMORY_SIZE, MemorySize.ofMebiBytes(512));
        return settings;
    }

    private static DataStream<Batch> batches(Job job, StreamExecutionEnvironment env) {
        KafkaSource<Batch> source =
                KafkaSource.<Batch>builder()
                        .setBootstrapServers(job.servers())
                        .setTopics(job.topic())
                        .setGroupId("flink-" + job.topic())
                        .setStartingOffsets(OffsetsInitializer.earliest())
                        .setBounded(OffsetsInitializer.latest())
                        .setProperty("max.poll.records", "10000")
                        .setProperty("max.partition.fetch.bytes", "8000000")
                        .setDeserializer(new Parse(job.metrics()))
                        .build();
        Duration lateness = Duration.ofMillis(job.metrics().get(0).latenessMs());
        return env.fromSource(
                source,
                WatermarkStrategy.<Batch>forBoundedOutOfOrderness(lateness)
                        .withTimestampAssigner((batch, kafkaMs) -> batch.timeMs),
                "reports");
    }

    /**
     * Returns batches by bucket; with one thread they need not go through the network's buffers.
     */
    private static KeyedStream<Batch, Long> keyed(Job job, DataStream<Batch> batches) {
        List<Metric> metrics = job.metrics();
        return job.parallelism() == 1
                ? DataStreamUtils.reinterpretAsKeyedStream(
                        batches, batch -> bucket(batch, metrics), Types.LONG)
                : batches.keyBy(batch -> bucket(batch, metrics), Types.LONG);
    }

    /** Returns the metric, the bucket and the pane of a batch in one number. */
    private static long bucket(Batch batch, List<Metric> metrics) {
        long number = batch.timeMs / metrics.get(batch.metric).paneMs();
        int hash = batch.idHash() & BUCKETS - 1;
        return (long) batch.metric << 56 | (long) hash << 40 | number;
    }

    private static final class Parse implements KafkaRecordDeserializationSchema<Batch> {
        private static final long serialVersionUID = 1;
        private final List<Metric> metrics;

        Parse(List<Metric> metrics) {
            this.metrics = metrics;
        }

        @Override
        public void deserialize(ConsumerRecord<byte[], byte[]> message, Collector<Batch> out) {
            Batch batch = Batch.parse(message.value(), metrics);
            if (batch == null) {
                Job.REFUSED.increment();
                Job.COUNTED.increment();
            } else {
                out.collect(batch);
            }
        }

        @Override
        public TypeInformation<Batch> getProducedType() {
            return Types.POJO(Batch.class);
        }
    }

    private static final class Count
            extends KeyedProcessFunction<Long, Batch, Tuple3<Integer, Long, long[]>> {
        private static final long serialVersionUID = 1;
        private final List<Metric> metrics;
        private transient MapState<String, Boolean> ids;
        private transient ValueState<long[]> sums;

        Count(List<Metric> metrics) {
            this.metrics = metrics;
        }

        @Override
        public void open(OpenContext context) {
            ids =
                    getRuntimeContext()
                            .getMapState(
                                    new MapStateDescriptor<>("ids", Types.STRING, Types.BOOLEAN));
            sums =
                    getRuntimeContext()
                            .getState(
                                    new ValueStateDescriptor<>(
                                            "sums", TypeInformation.of(new TypeHint<long[]>() {})));
        }

        @Override
        public void processElement(
                Batch batch, Context context, Collector<Tuple3<Integer, Long, long[]>> out)
                throws Exception {
            Job.COUNTED.increment();
            Metric metric = metrics.get(batch.metric);
            long last = metric.paneOf(batch.timeMs) + metric.paneMs() - 1;
            if (last <= context.timerService().currentWatermark()) {
                Job.REFUSED.increment();
                return;
            }
            long[] row = sums.value();
            if (row == null) {
                row = metric.empty();
                context.timerService().registerEventTimeTimer(last);
            }
            String id = batch.idText();
            if (ids.contains(id)) {
                row[row.length - 1] += batch.size;
            } else {
                ids.put(id, true);
                batch.addTo(row);
            }
            sums.update(row);
        }

        @Override
        public void onTimer(
                long last, OnTimerContext context, Collector<Tuple3<Integer, Long, long[]>> out)
                throws Exception {
            int number = (int) (context.getCurrentKey() >>> 56);
            out.collect(Tuple3.of(number, last + 1 - metrics.get(number).paneMs(), sums.value()));
            ids.clear();
            sums.clear();
        }
    }
}
