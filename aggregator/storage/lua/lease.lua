-- A lease: at most one holder at a time, and writes that only the holder can make.
-- KEYS[1] the lease, KEYS[2] the counter of its epochs, then the keys that are written; ARGV[1] what to do, ARGV[2] the holder's token
-- ('' when it has none yet), ARGV[3] the length in milliseconds.
-- acquire: ARGV[4] a name; returns the token '<epoch>:<name>', or '' if somebody holds the lease.
-- renew, release: return 1, or 0 if the lease is no longer this holder's.
-- write: ARGV[4...] Redis commands, each as the number of its words and the words; returns as above.
-- swap: sets field ARGV[4] of the hash KEYS[3] from ARGV[5] ('' where there is none) to ARGV[6]; returns as above, or -1 if it
-- has another value.
local MOST = 4000
local verb, token = ARGV[1], ARGV[2]
if verb == 'acquire' then
  if redis.call('EXISTS', KEYS[1]) == 1 then return '' end
  token = redis.call('INCR', KEYS[2]) .. ':' .. ARGV[4]
  redis.call('SET', KEYS[1], token, 'PX', ARGV[3])
  return token
end
if redis.call('GET', KEYS[1]) ~= token then return 0 end
if verb == 'renew' then
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
elseif verb == 'release' then
  redis.call('DEL', KEYS[1])
elseif verb == 'swap' then
  if (redis.call('HGET', KEYS[3], ARGV[4]) or '') ~= ARGV[5] then return -1 end
  redis.call('HSET', KEYS[3], ARGV[4], ARGV[6])
else
  local i = 4
  while i <= #ARGV do -- before anything is written
    local words = tonumber(ARGV[i])
    if words > MOST then return redis.error_reply('a write of ' .. words .. ' words: at most ' .. MOST) end
    i = i + words + 1
  end
  i = 4
  while i <= #ARGV do
    local words = tonumber(ARGV[i])
    redis.call(unpack(ARGV, i + 1, i + words))
    i = i + words + 1
  end
end
return 1
