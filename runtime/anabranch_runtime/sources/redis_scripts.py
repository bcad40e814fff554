"""Lua scripts that run in Redis, each atomically, so that their results are consistent.

Scripts only read. Ids are sent as text. Scripts call ``XRANGE`` in the server, so that Python need
not parse every entry, which would be the slowest part of reading a Redis Stream.
"""

from __future__ import annotations

from typing import Final

#: KEYS: the Redis Stream. ARGV: id of the last entry read.
#: -> number of entries ever added (-1: not counted by the server), of entries present; last id ever
#: generated, greatest id removed by XDEL, last id present, first unread id; number of rows that the
#: first unread entry declares; the server's time in milliseconds.
LOOK: Final = """
local time = redis.call('TIME')
local now = tostring(time[1] * 1000 + math.floor(time[2] / 1000))
if redis.call('EXISTS', KEYS[1]) == 0 then
  return {0, 0, '0-0', '0-0', '0-0', '0-0', 1, now}
end
local info, known = redis.call('XINFO', 'STREAM', KEYS[1]), {}
for i = 1, #info, 2 do known[info[i]] = info[i + 1] end
local last, first, rows = '0-0', '0-0', 1
if known['last-entry'] then last = known['last-entry'][1] end
if last ~= '0-0' and last ~= ARGV[1] then
  local next = redis.call('XRANGE', KEYS[1], '(' .. ARGV[1], '+', 'COUNT', 1)
  if #next > 0 then
    first = next[1][1]
    for f = 1, #next[1][2], 2 do
      if next[1][2][f] == 'rows' then rows = tonumber(next[1][2][f + 1]) or 1 end
    end
  end
end
return {known['entries-added'] or -1, known['length'], known['last-generated-id'],
        known['max-deleted-entry-id'] or '0-0', last, first, math.max(rows, 1), now}
"""

#: Divides entries into *cuts*, consecutive ranges of ids. KEYS: the Redis Stream. ARGV: id after
#: which to begin, last id or +, maximum number of rows (-1: no limit), rows per cut, whether
#: entries declare their number of rows (1 or 0). -> per cut: its last id, number of entries, number
#: of rows. There is at least one entry in the cuts, if any is left.
CUT: Final = """
local last, most, step = ARGV[1], tonumber(ARGV[3]), tonumber(ARGV[4])
local cuts, total, entries, rows = {}, 0, 0, 0
local full = false
while not full do
  local found = redis.call('XRANGE', KEYS[1], '(' .. last, ARGV[2], 'COUNT', 128)
  if #found == 0 then break end
  for _, entry in ipairs(found) do
    local here = 1
    if ARGV[5] == '1' then
      for f = 1, #entry[2], 2 do
        if entry[2][f] == 'rows' then here = tonumber(entry[2][f + 1]) or 1 end
      end
      if here < 1 then here = 1 end
    end
    if most >= 0 and total > 0 and total + here > most then full = true break end
    total, entries, rows, last = total + here, entries + 1, rows + here, entry[1]
    if rows >= step then
      cuts[#cuts + 1] = {last, entries, rows}
      entries, rows = 0, 0
    end
  end
end
if entries > 0 then cuts[#cuts + 1] = {last, entries, rows} end
return cuts
"""

#: KEYS: the Redis Stream. ARGV: id after which to begin, last id, maximum number of entries, kind
#: of payload, then the payload's field, or the names of the columns. -> number of entries read,
#: last id, fields and values of entries without the field (each a JSON list, its first 64 KiB), and
#: the payloads: JSON lines as one text, Arrow streams one by one. Arrow streams and entries without
#: the field have at most 16 MB together, unless there is only one.
READ: Final = """
local found = redis.call('XRANGE', KEYS[1], '(' .. ARGV[1], ARGV[2], 'COUNT', ARGV[3])
local out, missing, entries, last, size = {}, {}, 0, ARGV[1], 0
local wanted = {}
for i = 5, #ARGV do wanted[ARGV[i]] = true end
for _, entry in ipairs(found) do
  local fields = entry[2]
  if ARGV[4] == 'fields' then
    local row, any = {}, false
    for f = 1, #fields, 2 do
      if wanted[fields[f]] then row[fields[f]] = fields[f + 1]; any = true end
    end
    out[#out + 1] = any and cjson.encode(row) or '{}'
  else
    local value, several = nil, false
    for f = 1, #fields, 2 do
      if fields[f] == ARGV[5] then value = fields[f + 1] end
      if fields[f] == 'rows' then several = true end
    end
    if not value then
      if size > 16777216 then break end
      missing[#missing + 1] = string.sub(cjson.encode(fields), 1, 65536)
      size = size + #missing[#missing]
    else
      size = size + #value
      if ARGV[4] == 'arrow' and size > 16777216 and size > #value then break end
      if ARGV[4] == 'json' and not several and string.find(value, '[\\r\\n]') then
        value = string.gsub(value, '[\\r\\n]+', ' ')
      end
      out[#out + 1] = value
    end
  end
  entries, last = entries + 1, entry[1]
end
if ARGV[4] ~= 'arrow' then out = {table.concat(out, '\\n')} end
return {entries, last, missing, out}
"""
