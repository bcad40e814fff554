import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Set;

import org.apache.flink.configuration.ConfigOption;
import org.apache.flink.configuration.ConfigOptions;
import org.apache.flink.table.connector.source.DynamicTableSource;
import org.apache.flink.table.connector.source.LookupTableSource;
import org.apache.flink.table.connector.source.lookup.LookupFunctionProvider;
import org.apache.flink.table.data.GenericRowData;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.data.StringData;
import org.apache.flink.table.factories.DynamicTableSourceFactory;
import org.apache.flink.table.factories.FactoryUtil;
import org.apache.flink.table.functions.FunctionContext;
import org.apache.flink.table.functions.LookupFunction;

/**
 * Connector {@code side_input}: a table in memory for lookup joins. Its {@code rows} rows have a
 * {@code key BIGINT}, counted from 0, and its decimal digits as {@code value STRING}.
 */
public final class SideInput implements DynamicTableSourceFactory {
    private static final ConfigOption<Integer> ROWS =
            ConfigOptions.key("rows").intType().noDefaultValue();

    @Override
    public String factoryIdentifier() {
        return "side_input";
    }

    @Override
    public Set<ConfigOption<?>> requiredOptions() {
        return Set.of(ROWS);
    }

    @Override
    public Set<ConfigOption<?>> optionalOptions() {
        return Set.of();
    }

    @Override
    public DynamicTableSource createDynamicTableSource(Context context) {
        return new Table(FactoryUtil.createTableFactoryHelper(this, context).getOptions().get(ROWS));
    }

    private record Table(int rows) implements LookupTableSource {
        @Override
        public LookupRuntimeProvider getLookupRuntimeProvider(LookupContext context) {
            return LookupFunctionProvider.of(new Lookup(rows));
        }

        @Override
        public DynamicTableSource copy() {
            return this;
        }

        @Override
        public String asSummaryString() {
            return "side input of " + rows + " rows";
        }
    }

    /** One row of the array per key. */
    public static final class Lookup extends LookupFunction {
        private static final long serialVersionUID = 1L;

        private final int rows;
        private transient List<Collection<RowData>> found;

        Lookup(int rows) {
            this.rows = rows;
        }

        @Override
        public void open(FunctionContext context) {
            found = new ArrayList<>(rows);
            for (long key = 0; key < rows; key++) {
                found.add(List.of(GenericRowData.of(key, StringData.fromString(Long.toString(key)))));
            }
        }

        @Override
        public Collection<RowData> lookup(RowData key) {
            long number = key.getLong(0);
            return number >= 0 && number < rows ? found.get((int) number) : List.of();
        }
    }
}
