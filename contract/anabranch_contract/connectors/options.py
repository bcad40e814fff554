"""Allowlists of the options of each format. An option that a later version of Spark or of a
connector adds is refused until it has been reviewed and listed.

Deliberately not listed are options that load classes, open files or addresses, move or delete
files, run statements, or identify batches (for idempotent writes). Names are compared ignoring
case, as in Spark. In a name that ends with ``#*`` the ``*`` stands for a column's name.
"""

from __future__ import annotations

from collections.abc import Mapping

from anabranch_contract.connectors import kafka_sources
from anabranch_contract.connectors.kafka_sinks import SINK_NAMES
from anabranch_contract.connectors.lake import options as lake_options
from anabranch_contract.connectors.postgres import options as postgres_options

_DATES = ("dateFormat", "timestampFormat", "timestampNTZFormat", "timeZone", "locale")
_REBASE = ("datetimeRebaseMode", "int96RebaseMode")
#: Options of all directories of files as sources. ``cleanSource`` would move and delete files.
_FOUND = (
    *("maxFilesPerTrigger", "maxBytesPerTrigger", "latestFirst", "fileNameOnly", "maxFileAge"),
    *("pathGlobFilter", "ignoreCorruptFiles", "ignoreMissingFiles"),
)
#: Options of directories that the runtime reads itself (``file_sources.POLICIES``).
_OWN = ("on_bad_file", "on_changed_file")
_KAFKA_CLIENT = tuple(
    "kafka." + name
    for name in (
        *("bootstrap.servers", "client.id", "client.dns.lookup", "security.protocol"),
        *("sasl.mechanism", "sasl.jaas.config", "ssl.endpoint.identification.algorithm"),
        *("ssl.protocol", "ssl.enabled.protocols", "ssl.cipher.suites"),
        *("ssl.keystore.location", "ssl.keystore.password", "ssl.keystore.type"),
        *("ssl.key.password", "ssl.truststore.location", "ssl.truststore.password"),
        *("ssl.truststore.type", "request.timeout.ms", "default.api.timeout.ms"),
        *("retry.backoff.ms", "reconnect.backoff.ms", "reconnect.backoff.max.ms"),
        *("connections.max.idle.ms", "metadata.max.age.ms", "receive.buffer.bytes"),
        *("send.buffer.bytes", "socket.connection.setup.timeout.ms"),
    )
)
_KAFKA_CONSUMER = tuple(
    "kafka." + name
    for name in (
        *("group.id", "isolation.level", "fetch.min.bytes", "fetch.max.bytes", "fetch.max.wait.ms"),
        *("max.partition.fetch.bytes", "max.poll.records", "max.poll.interval.ms"),
        *("session.timeout.ms", "heartbeat.interval.ms", "client.rack", "check.crcs"),
    )
)
_KAFKA_PRODUCER = tuple(
    "kafka." + name
    for name in (
        *("acks", "batch.size", "buffer.memory", "compression.type", "delivery.timeout.ms"),
        *("enable.idempotence", "linger.ms", "max.block.ms", "max.request.size", "retries"),
        *("max.in.flight.requests.per.connection",),
    )
)

SOURCE_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "parquet": (*_FOUND, *_REBASE, "mergeSchema"),
    "orc": (*_FOUND, "mergeSchema"),
    "text": (*_FOUND, "encoding", "lineSep", "wholetext"),
    "avro": (*_FOUND, "avroSchema", "datetimeRebaseMode", "mode", "positionalFieldMatching"),
    "json": (
        *(*_OWN, *_FOUND, *_DATES, "encoding", "lineSep", "mode", "multiLine", "allowComments"),
        *("allowUnquotedFieldNames", "allowSingleQuotes", "allowNumericLeadingZeros"),
        *("allowBackslashEscapingAnyCharacter", "allowUnquotedControlChars"),
        *("allowNonNumericNumbers", "primitivesAsString", "prefersDecimal"),
    ),
    "csv": (
        *(*_OWN, *_FOUND, *_DATES, "sep", "delimiter", "encoding", "charset", "quote", "escape"),
        *("charToEscapeQuoteEscaping", "comment", "header", "enforceSchema", "mode", "multiLine"),
        *("ignoreLeadingWhiteSpace", "ignoreTrailingWhiteSpace", "nullValue", "nanValue"),
        *("positiveInf", "negativeInf", "emptyValue", "lineSep", "maxColumns"),
        *("maxCharsPerColumn", "unescapedQuoteHandling"),
    ),
    "xml": (
        *(*_FOUND, *_DATES, "rowTag", "attributePrefix", "valueTag", "charset", "encoding"),
        *("ignoreSurroundingSpaces", "ignoreNamespace", "excludeAttribute", "mode", "nullValue"),
        *("wildcardColName", "arrayElementName"),
    ),
    **lake_options.NAMES,
    "kafka": (
        *(*kafka_sources.NAMES, *_KAFKA_CLIENT, *_KAFKA_CONSUMER, "subscribe", "subscribePattern"),
        *("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp"),
        *("startingOffsetsByTimestampStrategy", "failOnDataLoss", "groupIdPrefix", "assign"),
        *("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "minPartitions"),
        *("maxRecordsPerPartition", "kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries"),
        *("fetchOffset.retryIntervalMs", "includeHeaders"),
    ),
    "rate": ("rowsPerSecond", "rampUpTime", "numPartitions"),
    "rate-micro-batch": (
        *("rowsPerBatch", "numPartitions", "startTimestamp", "advanceMillisPerBatch"),
    ),
    "recorded": (),
    "postgres": postgres_options.NAMES,
}

_WRITTEN = ("compression", "maxRecordsPerFile")
#: File format -> the options of Spark's writer.
FILE_SINK_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "parquet": (
        *(*_WRITTEN, "parquet.block.size", "parquet.page.size", "parquet.page.row.count.limit"),
        *("parquet.dictionary.page.size", "parquet.enable.dictionary", "parquet.writer.version"),
        *("parquet.enable.dictionary#*", "parquet.bloom.filter.enabled"),
        *("parquet.bloom.filter.enabled#*", "parquet.bloom.filter.expected.ndv#*"),
        *("parquet.bloom.filter.max.bytes", "parquet.compression.codec.zstd.level"),
    ),
    "orc": (
        *(*_WRITTEN, "orc.compress", "orc.stripe.size", "orc.row.index.stride"),
        *("orc.create.index", "orc.bloom.filter.columns", "orc.bloom.filter.fpp"),
        *("orc.dictionary.key.threshold", "orc.column.encoding.direct"),
    ),
    "json": (*_WRITTEN, *_DATES, "encoding", "lineSep", "ignoreNullFields", "pretty"),
    "csv": (
        *(*_WRITTEN, *_DATES, "sep", "delimiter", "encoding", "charset", "quote", "escape"),
        *("header", "nullValue", "emptyValue", "charToEscapeQuoteEscaping", "quoteAll"),
        *("escapeQuotes", "lineSep", "ignoreLeadingWhiteSpace", "ignoreTrailingWhiteSpace"),
    ),
    "text": (*_WRITTEN, "encoding", "lineSep"),
    "xml": (
        *(*_WRITTEN, *_DATES, "rowTag", "rootTag", "declaration", "arrayElementName"),
        *("attributePrefix", "valueTag", "nullValue", "encoding", "validateName", "indent"),
    ),
    "avro": (
        *(*_WRITTEN, "avroSchema", "recordName", "recordNamespace", "positionalFieldMatching"),
        "avro.mapred.deflate.level",
    ),
}
#: Allowed names of compression codecs. Spark would load any other name as a class.
CODECS = frozenset({
    "none", "uncompressed", "bzip2", "deflate", "gzip", "lz4", "lz4_raw", "lzo", "snappy", "zstd",
    "zlib", "brotli", "xz", "zstandard",
})  # fmt: skip
TABLE_SINK_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "kafka": (*SINK_NAMES, *_KAFKA_CLIENT, *_KAFKA_PRODUCER, "includeHeaders"),
    "delta": ("compression", "targetFileSize"),
    "iceberg": ("table", "compression", "targetFileSize"),
    "jdbc": (
        *("url", "dbtable", "user", "password", "driver", "batchsize", "isolationLevel"),
        *("numPartitions", "queryTimeout", "createTableColumnTypes"),
    ),
}
#: Options whose values are paths of local files.
FILE_OPTIONS = (
    *("kafka.ssl.keystore.location", "kafka.ssl.truststore.location"),
    *("ca_file", "certificate_file"),
)


def option_fits(name: str, pattern: str) -> bool:
    """Whether the option ``name`` matches ``pattern``, which may end with ``*``."""
    if pattern.endswith("*"):
        return name.lower().startswith(pattern[:-1].lower())
    return name.lower() == pattern.lower()
