-- The running total of a metric in a partition: all closed panes and every open one, in one
-- consistent piece, so that a pane that closes meanwhile is neither missed nor counted twice.
-- KEYS[1] the partition's tag; ARGV[1] the metric's key. Returns the statistics' bytes.
local tag, metric = KEYS[1], ARGV[1]
local found = {redis.call('GET', tag .. ':total:' .. metric .. ':0') or ''}
for _, member in ipairs(redis.call('SMEMBERS', tag .. ':open')) do
  local name = string.match(member, '^(pane:.*):%d+$')
  if name and string.sub(name, 6, 5 + #metric + 1) == metric .. ':' then
    found[#found + 1] = redis.call('GET', tag .. ':' .. name) or ''
  end
end
return found
