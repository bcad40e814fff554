import java.util.ArrayList;
import java.util.Set;

import org.apache.flink.api.common.functions.MapFunction;
import org.apache.flink.configuration.ConfigOption;
import org.apache.flink.configuration.ConfigOptions;
import org.apache.flink.connector.file.sink.FileSink;
import org.apache.flink.core.fs.Path;
import org.apache.flink.formats.parquet.row.ParquetRowDataBuilder;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.DataStreamSink;
import org.apache.flink.table.connector.ChangelogMode;
import org.apache.flink.table.connector.ProviderContext;
import org.apache.flink.table.connector.sink.DataStreamSinkProvider;
import org.apache.flink.table.connector.sink.DynamicTableSink;
import org.apache.flink.table.data.GenericRowData;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.data.StringData;
import org.apache.flink.table.data.utils.JoinedRowData;
import org.apache.flink.table.factories.DynamicTableSinkFactory;
import org.apache.flink.table.factories.FactoryUtil;
import org.apache.flink.table.types.logical.LogicalType;
import org.apache.flink.table.types.logical.RowType;
import org.apache.flink.table.types.logical.VarCharType;
import org.apache.flink.types.RowKind;
import org.apache.hadoop.conf.Configuration;

/**
 * Connector {@code changes}: Parquet files in the folder {@code path}, a row per change, with the
 * kind of the change ({@code +I}, {@code -U}, {@code +U}, {@code -D}) behind the columns, which are
 * named {@code c0}, {@code c1}, ...
 */
public final class Changes implements DynamicTableSinkFactory {
    private static final ConfigOption<String> PATH =
            ConfigOptions.key("path").stringType().noDefaultValue();

    @Override
    public String factoryIdentifier() {
        return "changes";
    }

    @Override
    public Set<ConfigOption<?>> requiredOptions() {
        return Set.of(PATH);
    }

    @Override
    public Set<ConfigOption<?>> optionalOptions() {
        return Set.of();
    }

    @Override
    public DynamicTableSink createDynamicTableSink(Context context) {
        var helper = FactoryUtil.createTableFactoryHelper(this, context);
        var row = (RowType) context.getPhysicalRowDataType().getLogicalType();
        return new Target(helper.getOptions().get(PATH), row);
    }

    private record Target(String path, RowType row) implements DynamicTableSink {
        @Override
        public ChangelogMode getChangelogMode(ChangelogMode requested) {
            return ChangelogMode.all();
        }

        @Override
        public SinkRuntimeProvider getSinkRuntimeProvider(Context context) {
            return new DataStreamSinkProvider() {
                @Override
                public DataStreamSink<?> consumeDataStream(
                        ProviderContext provider, DataStream<RowData> rows) {
                    return rows.map(new WithKind()).returns(RowData.class).sinkTo(files());
                }
            };
        }

        private FileSink<RowData> files() {
            var types = new ArrayList<LogicalType>(row.getChildren());
            types.add(VarCharType.STRING_TYPE);
            var names = new String[types.size()];
            for (int place = 0; place < names.length; place++) {
                names[place] = "c" + place;
            }
            var written = RowType.of(types.toArray(LogicalType[]::new), names);
            var writers =
                    ParquetRowDataBuilder.createWriterFactory(written, new Configuration(), true);
            return FileSink.forBulkFormat(new Path(path), writers).build();
        }

        @Override
        public DynamicTableSink copy() {
            return this;
        }

        @Override
        public String asSummaryString() {
            return "changes in " + path;
        }
    }

    /** A row that is inserted, with the kind of the given one as its last column. */
    private static final class WithKind implements MapFunction<RowData, RowData> {
        private static final long serialVersionUID = 1L;

        @Override
        public RowData map(RowData row) {
            var kind = GenericRowData.of(StringData.fromString(row.getRowKind().shortString()));
            return new JoinedRowData(RowKind.INSERT, row, kind);
        }
    }
}
