-- A lease: at most one holder at a time, and writes that only the holder can make.
-- KEYS[1] the lease, KEYS[2] the counter of its epochs, then the keys that are written; ARGV[1] what to do, ARGV[2] the holder's token
-- ('' when it has none yet), ARGV[3] the length in milliseconds.
-- acquire: ARGV[4] a name; returns the token '<epoch>:<name>', or '' if somebody holds the lease.
-- If a key holds what cannot be used, each of these returns {key, what it holds, what is expected}.
-- renew, release: return 1, or 0 if the lease is no longer this holder's.
-- write: ARGV[4] a number of fields of the hash KEYS[3], then each field and the value that it must have ('' where there is none),
-- then Redis commands, each as the number of its words and the words; returns as above, or -1 if a field has another value.
local MOST = 4000
local verb, token = ARGV[1], ARGV[2]
local function failure(reply, command, key) -- returns nil if the command has succeeded
  local message = type(reply) == 'table' and reply.err
  if not message then return nil end
  if string.find(message, 'WRONGTYPE') then return {key, 'another type', 'a type that ' .. command .. ' accepts'} end
  if string.find(message, 'integer') or string.find(message, 'overflow') then
    return {key, 'a value that ' .. command .. ' refuses', 'a whole number'}
  end
  return reply
end
if verb == 'acquire' then
  if redis.call('EXISTS', KEYS[1]) == 1 then
    if redis.call('PTTL', KEYS[1]) == -1 then return {KEYS[1], 'a value that never expires', 'a lease, which expires'} end
    return ''
  end
  local epoch = redis.pcall('INCR', KEYS[2])
  local failed = failure(epoch, 'INCR', KEYS[2])
  if failed then return failed end
  token = epoch .. ':' .. ARGV[4]
  redis.call('SET', KEYS[1], token, 'PX', ARGV[3])
  return token
end
local holder = redis.pcall('GET', KEYS[1])
if holder ~= token then return failure(holder, 'GET', KEYS[1]) or 0 end
if verb == 'renew' then
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
elseif verb == 'release' then
  redis.call('DEL', KEYS[1])
else
  local first = 5 + 2 * ARGV[4]
  for field = 5, first - 1, 2 do
    local values = redis.pcall('HMGET', KEYS[3], ARGV[field])
    if (values[1] or '') ~= ARGV[field + 1] then return failure(values, 'HMGET', KEYS[3]) or -1 end
  end
  local i = first
  while i <= #ARGV do -- before anything is written
    local words = tonumber(ARGV[i])
    if words > MOST then return redis.error_reply('a write of ' .. words .. ' words: at most ' .. MOST) end
    i = i + words + 1
  end
  i = first
  while i <= #ARGV do
    local words = tonumber(ARGV[i])
    local failed = failure(redis.pcall(unpack(ARGV, i + 1, i + words)), ARGV[i + 1], ARGV[i + 2])
    if failed then return failed end
    i = i + words + 1
  end
end
return 1
