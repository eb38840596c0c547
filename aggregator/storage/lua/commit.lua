-- The one commit: a partition's sums and its next offset, together or not at all.
-- KEYS[1] the partition's owner, KEYS[2] the sizes of its sets, then every key that is written: so
-- that Redis itself refuses the call, before anything is written, while a Redis Cluster moves them.
-- ARGV: epoch, the next offset this was built on, the new next offset, the token of the take-over,
-- then the writes, each as the number of its words and the words of a Redis command.
-- Returns {outcome, stored epoch, stored next offset}; outcome is 'ok', 'known' (this very commit
-- was made before and its reply was lost), 'fenced', or 'torn': then the third says what failed.
-- {'gone', key, '<found>:<expected>'} says that a key has not as many members, fields or bytes as
-- the commits before have left there: a write would make it anew with a part. Nothing was written.
-- How many members each set has is kept in KEYS[2], by the key without its tag, and how many fields
-- each hash of message keys, and that of the numbers of ids. The owner's field 'sizes' is the commit
-- that wrote them last: where it is not the last commit ('done'), that was made by a version that
-- keeps none; they begin anew.
-- Next offset -2 says that a commit was applied by half: a write below failed (Lua cannot roll back),
-- or Redis lost power while it logged one and later ran what it had of it, which some versions do
-- when they start for the second time. 'begun' and 'done' tell: each commit counts the one up, and
-- sets the other to it at the end.
-- The token is there because epochs come again where Redis lost some of them.
local MOST = 4000
local SIZES = {ZADD = 'ZCARD', SADD = 'SCARD', SREM = 'SCARD'}
local owner, sizes = KEYS[1], KEYS[2]
local function name_of(key) return string.sub(key, #owner - 4) end -- 'owner' has five letters
local function size_of(command, key) -- returns the command that tells it, if it is kept
  if command == 'HSET' or command == 'HDEL' then
    local name = name_of(key)
    return (name == 'ids' or string.sub(name, 1, 5) == 'keys:') and 'HLEN'
  end
  return SIZES[command]
end
local stored = redis.call('HMGET', owner, 'epoch', 'next', 'begun', 'done', 'token', 'sizes')
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
local is_sized = stored[6] and stored[6] == stored[4]
if is_sized and redis.call('EXISTS', sizes) == 0 then return {'gone', sizes, '0:1'} end
local sets = {}
local i = 5
while i <= #ARGV do -- what Lua could not unpack, or is gone, must not be found out half-way
  local words, name, key = tonumber(ARGV[i]), ARGV[i + 1], ARGV[i + 2]
  if words > MOST then return redis.error_reply('a write of ' .. words .. ' words: at most ' .. MOST) end
  local asks = size_of(name, key)
  if asks and not sets[key] then
    sets[key], sets[#sets + 1] = asks, key
    local known = is_sized and redis.call('HMGET', sizes, name_of(key))[1]
    local size = redis.pcall(asks, key)
    if type(size) == 'table' then -- of another type it is told by the write
      if not string.find(size.err, 'WRONGTYPE') then return size end
    elseif known and size ~= tonumber(known) then
      return {'gone', key, size .. ':' .. known}
    end
  elseif name == 'SETRANGE' and ARGV[i + 3] ~= '0' and ARGV[i + 4] ~= '\0' then -- no padding
    local size = redis.call('STRLEN', key)
    if size < tonumber(ARGV[i + 3]) then return {'gone', key, size .. ':' .. ARGV[i + 3]} end
  end
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
  if ARGV[i + 1] == 'UNLINK' and words > 2 then -- the second key has message keys, or is a chunk
    redis.call('HDEL', sizes, name_of(ARGV[i + 3]))
  end
  i = i + words + 1
end
if not is_sized then redis.call('DEL', sizes) end
for _, key in ipairs(sets) do
  local size = redis.call(sets[key], key)
  if size == 0 and sets[key] == 'HLEN' then
    redis.call('HDEL', sizes, name_of(key))
  else
    redis.call('HSET', sizes, name_of(key), size)
  end
end
if is_sized or #sets > 0 then redis.call('HSET', owner, 'sizes', begun) end
redis.call('HSET', owner, 'next', ARGV[3], 'done', begun)
return {'ok', epoch, ARGV[3]}
