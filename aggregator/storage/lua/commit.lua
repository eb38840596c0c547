-- The one commit: a partition's sums and its next offset, together or not at all.
-- KEYS[1] the partition's owner, then every key that is written: so that Redis itself refuses the
-- call, before anything is written, while a Redis Cluster is moving them.
-- ARGV: epoch, the next offset this was built on, the new next offset, the token of the take-over,
-- then the writes, each as the number of its words and the words of a Redis command.
-- Returns {outcome, stored epoch, stored next offset}; outcome is 'ok', 'known' (this very commit
-- was made before and its reply was lost), 'fenced', or 'torn': then the third says what failed.
-- Next offset -2 says that a commit was applied by half: a write below failed (Lua cannot roll back),
-- or Redis lost power while it logged one and later ran what it had of it, which some versions do
-- when they start for the second time. 'begun' and 'done' tell: each commit counts the one up, and
-- sets the other to it at the end.
-- The token is there because epochs come again where Redis lost some of them.
local MOST = 4000
local owner = KEYS[1]
local stored = redis.call('HMGET', owner, 'epoch', 'next', 'begun', 'done', 'token')
local epoch, next_offset = stored[1] or '0', stored[2] or '-1'
if stored[3] ~= stored[4] then
  redis.call('HSET', owner, 'next', -2)
  return {'fenced', epoch, '-2'}
end
if epoch ~= ARGV[1] or (stored[5] or '') ~= ARGV[4] then return {'fenced', epoch, next_offset} end
if next_offset ~= ARGV[2] then
  if next_offset == ARGV[3] then return {'known', epoch, next_offset} end
  return {'fenced', epoch, next_offset}
end
local i = 5
while i <= #ARGV do -- what Lua could not unpack must not be found out half-way
  local words = tonumber(ARGV[i])
  if words > MOST then return redis.error_reply('a write of ' .. words .. ' words: at most ' .. MOST) end
  i = i + words + 1
end
redis.call('HSET', owner, 'next', -2)
local begun = redis.call('HINCRBY', owner, 'begun', 1)
i = 5
while i <= #ARGV do
  local words = tonumber(ARGV[i])
  local reply = redis.pcall(unpack(ARGV, i + 1, i + words))
  if type(reply) == 'table' and reply.err then
    return {'torn', epoch, ARGV[i + 1] .. ' ' .. ARGV[i + 2] .. ': ' .. reply.err}
  end
  i = i + words + 1
end
redis.call('HSET', owner, 'next', ARGV[3], 'done', begun)
return {'ok', epoch, ARGV[3]}
