-- The running total of a metric in a partition: all closed panes and every open one, in one
-- consistent piece, so that a pane that closes meanwhile is neither missed nor counted twice.
-- KEYS: the partition's set of open panes, the metric's total; ARGV[1] the metric's key.
-- Returns {key, statistic, key, statistic, ...}; the statistic of an open pane is false where it is gone.
local tag = string.match(KEYS[1], '^(.*):open$')
local metric = ARGV[1]
local found = {}
local total = redis.call('GET', KEYS[2])
if total then found = {KEYS[2], total} end
for _, member in ipairs(redis.call('SMEMBERS', KEYS[1])) do
  local name = string.match(member, '^(pane:.*):%d+$')
  if name and string.sub(name, 6, 5 + #metric + 1) == metric .. ':' then
    found[#found + 1] = tag .. ':' .. name
    found[#found + 1] = redis.call('GET', tag .. ':' .. name)
  end
end
return found
