-- For wrk: posts batches with random ids. Arguments: what is before the id and after it, in
-- hexadecimal digits; a seed in hexadecimal digits; the media type.
local before, after, headers
local random = math.random

local function bytes(digits)
  return (digits:gsub("..", function(pair) return string.char(tonumber(pair, 16)) end))
end

function init(arguments)
  before, after = bytes(arguments[1]), bytes(arguments[2])
  math.randomseed(tonumber(arguments[3], 16))
  headers = { ["Content-Type"] = arguments[4] }
end

function request()
  local id = string.char(
    random(0, 255), random(0, 255), random(0, 255), random(0, 255),
    random(0, 255), random(0, 255), random(0, 255), random(0, 255),
    random(0, 255), random(0, 255), random(0, 255), random(0, 255),
    random(0, 255), random(0, 255), random(0, 255), random(0, 255))
  return wrk.format("POST", nil, headers, before .. id .. after)
end

function done(summary)
  local e = summary.errors
  io.stderr:write(string.format(
    '{"posts": %d, "failed": %d}',
    summary.requests, e.connect + e.read + e.write + e.status + e.timeout))
end
