-- One call on a sliding log: a sorted set with the times of the grants within the window.
--
-- KEYS[1]  the log
-- ARGV[1]  the limit
-- ARGV[2]  the window, in microseconds
-- ARGV[3]  the debt of a lease, which a log refuses
-- ARGV[4]  the fewest and ARGV[5] the most grants; a negative most gives that many back
-- ARGV[6]  the grants that were made without the log, down to a debt of one limit
--
-- Returns the grants, the grants left, a wait, and the server's time, both in microseconds. The wait
-- is for the fewest grants after a refusal, else for one more than is left. A call that changes
-- nothing writes nothing.

local key = KEYS[1]
local limit, window = tonumber(ARGV[1]), tonumber(ARGV[2])
local least, most, spent = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])

local function text(number)
  return string.format('%.0f', number)
end

if limit > 10000 or tonumber(ARGV[3]) > 0 then
  return redis.error_reply('DENIED a log has at most 10000 calls, and no leases: not ' .. text(limit))
end

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local begin = '(' .. text(now - window)

-- The log has more entries than the limit, if that was lowered or is in debt.
local used = redis.call('ZCOUNT', key, begin, '+inf')
local debt = math.max(0, math.min(spent, 2 * limit - used))
local there = math.max(0, limit - used - debt)
local granted = there >= least and math.max(0, math.min(most, there)) or 0
local back = math.max(0, math.min(-most, used + debt))

if debt + granted + back > 0 then
  redis.call('ZREMRANGEBYSCORE', key, '-inf', text(now - window))
  -- Grants in one microsecond get different members.
  local sequence = used
  for _ = 1, debt + granted do
    while redis.call('ZADD', key, 'NX', text(now), text(now) .. '-' .. text(sequence)) == 0 do
      sequence = sequence + 1
    end
  end
  if debt + granted > 0 then
    redis.call('PEXPIRE', key, text(math.ceil(window / 1000) + 1001))
  end
  -- Those given back are the first to leave: no window has more grants than entries.
  if back > 0 then
    redis.call('ZREMRANGEBYRANK', key, '0', text(back - 1))
  end
  used = used + debt + granted - back
end

local left = limit - used
local leaves = granted == 0 and most > 0 and least - left or 1
local wait = leaves > used and used > 0 and window or 0
if leaves > 0 and leaves <= used then
  local skip = text(leaves - 1)
  local last = redis.call('ZRANGEBYSCORE', key, begin, '+inf', 'WITHSCORES', 'LIMIT', skip, '1')
  wait = last[2] + window - now
end
return { granted, left, wait, now }
