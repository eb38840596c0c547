-- Takes a partition over, raising its epoch, and returns the state that a worker needs to go on
-- counting it, in one consistent piece.
-- KEYS: the partition's owner, watermarks, counts, open panes, sizes and numbers of batch ids;
-- ARGV[1] the worker's name, ARGV[2] a token of its own, ARGV[3] its consumer group, or the empty
-- string. What another group counts is not taken over.
-- It names the open panes, and how many batch ids each has in chunks. Whoever has taken over reads the
-- panes afterwards, in pieces, because nobody else adds to them any more. Last comes a set that has not
-- as many members as the last commit has left there: {key, found, expected}.
local tag = string.match(KEYS[1], '^(.*):owner$')
local group = redis.call('HMGET', KEYS[1], 'group')[1] or ''
if group == '' or ARGV[3] == '' or group == ARGV[3] then
  redis.call('HINCRBY', KEYS[1], 'epoch', 1)
  redis.call('HSET', KEYS[1], 'worker', ARGV[1], 'token', ARGV[2])
  if ARGV[3] ~= '' then redis.call('HSET', KEYS[1], 'group', ARGV[3]) end
  local commits = redis.call('HMGET', KEYS[1], 'begun', 'done')
  if commits[1] ~= commits[2] then redis.call('HSET', KEYS[1], 'next', -2) end
end
local short = {}
local ASKS = {['index:'] = 'ZCARD', ['keys:p'] = 'HLEN', ids = 'HLEN'}
local stamp = redis.call('HMGET', KEYS[1], 'done', 'sizes', 'begun', 'next')
if stamp[2] and stamp[1] == stamp[2] and stamp[1] == stamp[3] and stamp[4] ~= '-2' then
  local sizes = redis.call('HGETALL', KEYS[5])
  if #sizes == 0 then short = {KEYS[5], 0, 1} end
  for i = 1, #sizes, 2 do
    local key = tag .. ':' .. sizes[i]
    local found = redis.pcall(ASKS[string.sub(sizes[i], 1, 6)] or 'SCARD', key)
    if type(found) == 'number' and found ~= tonumber(sizes[i + 1]) then short = {key, found, sizes[i + 1]} end
  end
end
return {
  redis.call('HGETALL', KEYS[1]),
  redis.call('HGETALL', KEYS[2]),
  redis.call('HGETALL', KEYS[3]),
  redis.call('HGETALL', KEYS[6]),
  redis.call('SMEMBERS', KEYS[4]),
  short,
}
