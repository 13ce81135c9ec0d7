-- Steps of token buckets: the numbers are those of `Bucket::step`.
--
-- KEYS[i]  the bucket of call i
-- ARGV[1]  the specs, 49 bytes each
-- ARGV[2]  the calls, 22 bytes each: number of the spec, min, max, spent
-- ARGV[3]  if given, a missing key is a bucket that was empty when the server started
--
-- Returns granted and credits of each call, then the server's time in microseconds since 1970. All
-- keys are read before the first is written, so an error means that no call had an effect.
--
-- Numbers are doubles, which are exact to 2^53. A level beyond that is outside of the bucket, also
-- after rounding, so it is cut to the bucket's bound.

local SKEW_US = 1000000
local COUNTED = 9007199254740992
local STATE = '<i7I7I7'

local fmod, max, min = math.fmod, math.max, math.min
local pack, unpack = struct.pack, struct.unpack

local capacity, per_token, per_tick, tick_us, floor, debt, fill_ticks

local function text(number)
  return string.format('%.0f', number)
end

-- a / b, rounded up. (The operator `%` of this Lua is inexact for large numbers.)
local function div_up(a, b)
  local rest = fmod(a, b)
  local quotient = (a - rest) / b
  if rest > 0 then return quotient + 1 end
  return quotient
end

-- a * b / c, rounded down, for a < c: the long multiplication of b's bits, each step reduced by c.
local function mul_div(a, b, c)
  local bit, quotient, rest = 1, 0, 0
  while bit * 2 <= b do bit = bit * 2 end
  while bit >= 1 do
    quotient = quotient * 2
    if rest >= c - rest then
      quotient, rest = quotient + 1, rest - (c - rest)
    else
      rest = rest + rest
    end
    if b >= bit then
      b = b - bit
      if rest >= c - a then
        quotient, rest = quotient + 1, rest - (c - a)
      else
        rest = rest + a
      end
    end
    bit = bit / 2
  end
  return quotient
end

-- Converts a level with `before` credits a token into the credits of the spec.
local function convert(credits, before)
  local part = fmod(credits, before)
  local tokens = (credits - part) / before
  if part < 0 then
    tokens, part = tokens - 1, part + before
  end
  return tokens * per_token + mul_div(part, per_token, before)
end

-- Returns the level and its time after the refill, and whether the clock went back by more than
-- SKEW_US.
local function refill(credits, last, before, now)
  if before ~= per_token then credits = convert(credits, before) end
  credits = max(credits, -floor)
  local elapsed = now - last
  if elapsed < 0 then
    if -elapsed > SKEW_US then return min(credits, capacity), now, true end
    return min(credits, capacity), last
  end
  local phase = fmod(elapsed, tick_us)
  local ticks = (elapsed - phase) / tick_us
  if ticks >= fill_ticks then return capacity, now end
  credits = credits + ticks * per_tick
  -- A full bucket does not keep the part of a tick.
  if credits >= capacity then return capacity, now end
  return credits, now - phase
end

-- In two halves: for a bucket below the floor, by an older spec, all tokens at once may exceed 2^53
-- credits.
local function give_back(credits, tokens)
  local half = (tokens - fmod(tokens, 2)) / 2
  credits = min(credits + half * per_token, capacity)
  return min(credits + (tokens - half) * per_token, capacity)
end

local function take(credits, least, most)
  local there = max(credits + debt, 0)
  there = (there - fmod(there, per_token)) / per_token
  if there < least then return 0 end
  if debt > 0 then there = max(least, (there - fmod(there, 2)) / 2) end
  return min(most, there)
end

-- The milliseconds until a level is full, rounded up, and the longest step back of the clock.
local function time_to_live(credits)
  local ticks
  if credits < 0 then
    ticks = div_up(capacity, per_tick) + div_up(-credits, per_tick)
  else
    ticks = div_up(capacity - credits, per_tick)
  end
  return min(math.ceil(ticks * tick_us / 1000) + SKEW_US / 1000 + 1, COUNTED)
end

-- The time of the server's start. It is known to a second, of which the end is taken.
local function boot(now, second)
  local uptime = string.match(redis.call('INFO', 'server'), 'uptime_in_seconds:(%d+)')
  return min(now, (second - uptime + 1) * 1000000)
end

local function is_sound(credits, last, before)
  return credits > -COUNTED and credits < COUNTED and last < COUNTED and before > 0 and before < COUNTED
end

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local booted = nil
local reply, writes = {}, {}
local selected = nil

for i, key in ipairs(KEYS) do
  local spec, least, most, spent = unpack('<I1i7i7I7', ARGV[2], i * 22 - 21)
  if spec ~= selected then
    selected = spec
    capacity, per_token, per_tick, tick_us, floor, debt, fill_ticks =
      unpack('<I7I7I7I7I7I7I7', ARGV[1], spec * 49 + 1)
  end

  local credits, last, before = capacity, now, per_token
  local state = redis.pcall('GET', key)
  if type(state) == 'table' then
    if string.find(state.err, 'WRONGTYPE', 1, true) then return redis.error_reply('BADSTATE ' .. i) end
    return state
  elseif state then
    if #state ~= 21 then return redis.error_reply('BADSTATE ' .. i) end
    credits, last, before = unpack(STATE, state)
    if not is_sound(credits, last, before) then return redis.error_reply('BADSTATE ' .. i) end
  elseif ARGV[3] then
    booted = booted or boot(now, time[1])
    credits, last = 0, booted
  end
  local went_back
  credits, last, went_back = refill(credits, last, before, now)

  if spent > 0 then credits = max(credits - spent * per_token, -floor) end
  local granted = most
  if most < 0 then
    credits = give_back(credits, -most)
  else
    granted = take(credits, least, most)
    credits = credits - granted * per_token
  end
  reply[i * 2 - 1], reply[i * 2] = granted, credits
  if granted ~= 0 or spent > 0 or went_back then
    writes[#writes + 1] = { key, pack(STATE, credits, last, per_token), time_to_live(credits) }
  end
end

for _, write in ipairs(writes) do
  redis.call('SET', write[1], write[2], 'PX', text(write[3]))
end
reply[#reply + 1] = now
return reply
