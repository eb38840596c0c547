-- The one commit: a partition's sums and its next offset, together or not at all.
-- KEYS[1] the partition's tag; ARGV: epoch, the next offset this was built on, the new next offset,
-- then the writes, each as the number of its words and the words of a Redis command.
-- Returns {outcome, stored epoch, stored next offset}; outcome is 'ok', 'known' (this very commit
-- was made before and its reply was lost) or 'fenced'.
local owner = KEYS[1] .. ':owner'
local stored = redis.call('HMGET', owner, 'epoch', 'next')
local epoch, next_offset = stored[1] or '0', stored[2] or '-1'
if epoch ~= ARGV[1] then return {'fenced', epoch, next_offset} end
if next_offset ~= ARGV[2] then
  if next_offset == ARGV[3] then return {'known', epoch, next_offset} end
  return {'fenced', epoch, next_offset}
end
redis.call('HSET', owner, 'next', -2) -- torn, should a write below fail: Lua cannot roll back
local i = 4
while i <= #ARGV do
  local words = tonumber(ARGV[i])
  redis.call(unpack(ARGV, i + 1, i + words))
  i = i + words + 1
end
redis.call('HSET', owner, 'next', ARGV[3])
return {'ok', epoch, ARGV[3]}
