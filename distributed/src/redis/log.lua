-- One call on a sliding log: a sorted set with the times of the grants within the window.
--
-- KEYS[1]  the log
-- ARGV[1]  the limit
-- ARGV[2]  the window, in microseconds
--
-- Returns granted (1 or 0), the calls left, and the microseconds until a call is granted. A refused
-- call writes nothing.

local key = KEYS[1]
local limit, window = tonumber(ARGV[1]), tonumber(ARGV[2])

local function text(number)
  return string.format('%.0f', number)
end

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local begin = '(' .. text(now - window)

local used = redis.call('ZCOUNT', key, begin, '+inf')
if used >= limit then
  -- The log may have more calls than the limit, if that was lowered.
  local surplus = text(used - limit)
  local last = redis.call('ZRANGEBYSCORE', key, begin, '+inf', 'WITHSCORES', 'LIMIT', surplus, '1')
  return { 0, 0, last[2] + window - now }
end

redis.call('ZREMRANGEBYSCORE', key, '-inf', text(now - window))
-- Grants in one microsecond get different members.
local sequence = used
while redis.call('ZADD', key, 'NX', text(now), text(now) .. '-' .. text(sequence)) == 0 do
  sequence = sequence + 1
end
redis.call('PEXPIRE', key, text(math.ceil(window / 1000) + 1001))
return { 1, limit - used - 1, 0 }
