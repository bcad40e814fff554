// Words that can follow in a statement: streams, columns, functions, keywords. Pure functions.

/** Most suggestions at once. */
const MOST = 12;
const KEYWORDS = (
  "SELECT FROM WHERE JOIN LEFT ON AND OR NOT IN IS NULL AS BETWEEN LIKE EXISTS RIGHT FULL INNER OUTER SEMI ANTI USING WITH UNION ALL EXCEPT INTERSECT " +
  "GROUP BY HAVING ORDER LIMIT QUALIFY OVER PARTITION ROWS RANGE CASE WHEN THEN ELSE END CAST INTERVAL DISTINCT DATE TIMESTAMP TRUE FALSE " +
  "LATERAL VIEW PIVOT UNPIVOT VALUES ROLLUP CUBE FILTER FOR SYSTEM_TIME ASOF TUMBLE HOP SESSION"
).split(" ");
const RESERVED = new Set(KEYWORDS);
const NAME = "(?:`[^`]+`|[\\w.]+)";
const ALIAS = `(?:\\s+(?:AS\\s+)?(?!(?:${KEYWORDS.join("|")})\\b)(${NAME}))?`;
const TABLES = new RegExp(`(?:\\b(?:FROM|JOIN)|,)\\s*(${NAME})${ALIAS}`, "gi");

const bare = (name) => name.replaceAll("`", "");
const quoted = (name) => (/^[A-Za-z_]\w*$/.test(name) && !RESERVED.has(name.toUpperCase()) ? name : `\`${name}\``);

/** The text with literals and comments blanked, and whether its end is within one. */
function code(text) {
  const open = /('(?:[^']|'')*|"[^"]*|--[^\n]*|\/\*(?:(?!\*\/)[\s\S])*)$/;
  const blank = text.replace(/'(?:[^']|'')*'|"[^"]*"|--[^\n]*\n|\/\*[\s\S]*?\*\//g, (part) => " ".repeat(part.length));
  return [blank, open.test(blank)];
}

/** Alias or name -> stream, of the streams that a statement reads. */
function tables(text, streams) {
  const named = new Map(streams.map((stream) => [stream.name.toLowerCase(), stream]));
  const found = new Map();
  for (const [, name, alias] of code(text)[0].matchAll(TABLES)) {
    const stream = named.get(bare(name).toLowerCase());
    if (stream) found.set(bare(alias ?? name).toLowerCase(), stream);
  }
  return found;
}

/**
 * Suggestions for the word before the caret: `{ start, items }` with `items` of `{ text, kind }`. `start`: the
 * place of the word. `every`: also without a begun word. `functions`: names.
 */
export function suggestions(text, caret, { streams, functions }, every = false) {
  const [before, inside] = code(text.slice(0, caret));
  const none = { start: caret, items: [] };
  if (inside) return none;
  const [, owner, word] = /(?:([\w]+|`[^`]*`)\.)?(`[^`]*|[A-Za-z_]\w*)?$/.exec(text.slice(0, caret));
  const begun = (word ?? "").replace("`", "").toLowerCase();
  const start = caret - (word ?? "").length;
  const reads = tables(text, streams);
  const columns = (stream, by) => stream.columns.map((column) => ({ text: quoted(column.name), kind: `${column.type}, ${by}` }));
  let all;
  if (owner) {
    const stream = reads.get(bare(owner).toLowerCase());
    all = stream ? columns(stream, stream.name) : [];
  } else {
    if (!begun && !every) return none;
    const last = /\b([A-Za-z]+)\b[^A-Za-z]*$/.exec(before.slice(0, start));
    if (/^(from|join)$/i.test(last?.[1] ?? "")) all = streams.map(({ name }) => ({ text: quoted(name), kind: "stream" }));
    else
      all = [
        ...[...reads].flatMap(([alias, stream]) => columns(stream, alias)),
        ...[...reads.keys()].map((alias) => ({ text: quoted(alias), kind: "alias" })),
        ...KEYWORDS.map((keyword) => ({ text: keyword, kind: "keyword" })),
        ...functions.map((name) => ({ text: `${name}(`, kind: "function" })),
      ];
  }
  const plain = ({ text: one }) => bare(one).toLowerCase();
  const within = (one) => !plain(one).startsWith(begun);
  const items = all.filter((one) => (begun.length > 2 ? plain(one).includes(begun) : plain(one).startsWith(begun)));
  // A whole word needs no suggestion.
  if (items.length === 1 && plain(items[0]) === begun && items[0].kind !== "alias") return none;
  return { start, items: items.sort((one, other) => within(one) - within(other)).slice(0, MOST) };
}
