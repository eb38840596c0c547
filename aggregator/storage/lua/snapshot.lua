-- Takes a partition over, raising its epoch, and returns the state that a worker needs to go on
-- counting it, in one consistent piece.
-- KEYS: the partition's owner, watermarks, counts and open panes; ARGV[1] the worker's name, ARGV[2] a
-- token of its own, ARGV[3] its consumer group, or the empty string. What another group counts is
-- not taken over.
-- A statistic, and the ids of a pane's batches, are false where they are gone.
local tag = string.match(KEYS[1], '^(.*):owner$')
local group = redis.call('HMGET', KEYS[1], 'group')[1] or ''
if group == '' or ARGV[3] == '' or group == ARGV[3] then
  redis.call('HINCRBY', KEYS[1], 'epoch', 1)
  redis.call('HSET', KEYS[1], 'worker', ARGV[1], 'token', ARGV[2])
  if ARGV[3] ~= '' then redis.call('HSET', KEYS[1], 'group', ARGV[3]) end
  local commits = redis.call('HMGET', KEYS[1], 'begun', 'done')
  if commits[1] ~= commits[2] then redis.call('HSET', KEYS[1], 'next', -2) end
end
local panes = {}
for _, member in ipairs(redis.call('SMEMBERS', KEYS[4])) do
  local name = string.match(member, '^(.*):%d+$') or ''
  panes[#panes + 1] = {
    member,
    redis.call('GET', tag .. ':' .. name),
    redis.call('GET', tag .. ':seen:' .. name),
    redis.call('HGETALL', tag .. ':keys:' .. name),
  }
end
return {
  redis.call('HGETALL', KEYS[1]),
  redis.call('HGETALL', KEYS[2]),
  redis.call('HGETALL', KEYS[3]),
  panes,
}
