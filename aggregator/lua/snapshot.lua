-- The state that a worker needs to go on counting a partition, in one consistent piece.
-- KEYS[1] the partition's tag; ARGV[1] a worker's name to take the partition over (raising the epoch),
-- or the empty string to look only.
local tag = KEYS[1]
if ARGV[1] ~= '' then
  redis.call('HINCRBY', tag .. ':owner', 'epoch', 1)
  redis.call('HSET', tag .. ':owner', 'worker', ARGV[1])
end
local panes = {}
for _, member in ipairs(redis.call('SMEMBERS', tag .. ':open')) do
  local name = string.match(member, '^(.*):%d+$')
  panes[#panes + 1] = {
    member,
    redis.call('GET', tag .. ':' .. name) or '',
    redis.call('SMEMBERS', tag .. ':seen:' .. name),
    redis.call('HGETALL', tag .. ':keys:' .. name),
  }
end
return {
  redis.call('HGETALL', tag .. ':owner'),
  redis.call('HGETALL', tag .. ':watermarks'),
  redis.call('HGETALL', tag .. ':counts'),
  panes,
}
