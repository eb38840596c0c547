-- For wrk: posts batches with random ids. Arguments: what is before the id and after it, in
-- hexadecimal digits; a seed; the longest pause after an answer, in milliseconds; the media type.
local before, after, most, headers
local random = math.random

local function bytes(digits)
  return (digits:gsub("..", function(pair) return string.char(tonumber(pair, 16)) end))
end

function init(arguments)
  before, after, most = bytes(arguments[1]), bytes(arguments[2]), tonumber(arguments[4])
  math.randomseed(tonumber(arguments[3]))
  headers = { ["Content-Type"] = arguments[5] }
  if most == 0 then delay = nil end
end

function request()
  local id = string.char(
    random(0, 255), random(0, 255), random(0, 255), random(0, 255),
    random(0, 255), random(0, 255), random(0, 255), random(0, 255),
    random(0, 255), random(0, 255), random(0, 255), random(0, 255),
    random(0, 255), random(0, 255), random(0, 255), random(0, 255))
  return wrk.format("POST", nil, headers, before .. id .. after)
end

function delay() return random(0, most) end

function done(summary, latency)
  local e = summary.errors
  io.stderr:write(string.format(
    '{"posts": %d, "microseconds": %d, "failed": %d, "median": %d, "p99": %d}',
    summary.requests, summary.duration, e.connect + e.read + e.write + e.status + e.timeout,
    latency:percentile(50), latency:percentile(99)))
end
