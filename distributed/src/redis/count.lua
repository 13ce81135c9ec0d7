-- Steps of counts of windows: the numbers are those of `Count::step`.
--
-- KEYS[i]  the count of call i
-- ARGV[1]  the calls, 66 bytes each: the limit, how many numbers are counted, the kind of the edges
--          and their three numbers, whether it is a lease, the tokens spent, those that go back and
--          their window, and the fewest and the most tokens to grant
-- ARGV[2]  if given, a missing key is a count that was used up when the server started
--
-- Returns granted, the tokens left, the edge, and the tokens freed there, of each call, then the
-- server's time in microseconds since 1970. The edge of a call whose months are not those of the
-- server's clock is 0. All keys are read before the first is written, so an error means that no
-- call had an effect.
--
-- Numbers are doubles, which are exact to 2^53.

local SKEW_US = 1000000
local MOST = 9007199254740991
local CALL = '<I7I1I1I7I7I7I1I7I7I7I7I7'

local fmod, max, min = math.fmod, math.max, math.min
local pack, unpack = struct.pack, struct.unpack

local function text(number)
  return string.format('%.0f', number)
end

-- Returns the begin and the end of the window of a time; nothing outside of all months.
local function window_at(now, kind, first, second, third)
  if kind == 1 then return now, now + first end
  if kind == 0 then
    local phase = fmod(now - second, first)
    if phase < 0 then phase = phase + first end
    return max(now - phase, 0), now - phase + first
  end
  if now >= first and now < second then return first, second end
  if now >= second and now < third then return second, third end
end

-- Reads a count: its begin, its end, and its numbers; nothing if it is none.
local function read(state)
  local size = (#state - 14) / 7
  if size < 1 or size > 65 or size ~= math.floor(size) then return nil end
  local start, ends = unpack('>I7I7', state)
  local used, total = {}, 0
  for n = 1, size do
    used[n] = unpack('>I7', state, 7 * n + 8)
    if used[n] > MOST - total then return nil end
    total = total + used[n]
  end
  if start > ends or ends > MOST then return nil end
  return start, ends, used
end

local function sum(used)
  local total = 0
  for _, number in ipairs(used) do total = total + number end
  return total
end

local function none(counts)
  local used = {}
  for n = 1, counts do used[n] = 0 end
  return used
end

local function shifted(used, passed)
  local later = {}
  for n = 1, #used do later[n] = n > passed and used[n - passed] or 0 end
  return later
end

-- The time of the server's start. It is known to a second, of which the end is taken.
local function boot(now, second)
  local uptime = string.match(redis.call('INFO', 'server'), 'uptime_in_seconds:(%d+)')
  return min(now, (second - uptime + 1) * 1000000)
end

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local booted = nil
local reply, writes = {}, {}

for i, key in ipairs(KEYS) do
  local limit, counts, kind, first, second, third, leased, spent, back, of, least, most =
    unpack(CALL, ARGV[1], i * 66 - 65)
  local start, ends, used
  local state = redis.pcall('GET', key)
  if type(state) == 'table' then
    if string.find(state.err, 'WRONGTYPE', 1, true) then return redis.error_reply('BADSTATE ' .. i) end
    return state
  elseif state then
    start, ends, used = read(state)
    if not start then return redis.error_reply('BADSTATE ' .. i) end
  elseif ARGV[2] then
    booted = booted or boot(now, time[1])
    start, ends = window_at(booted, kind, first, second, third)
    if start then
      used = none(counts)
      used[1], ends = limit, start + (ends - start) * counts
    end
  end
  local began, edge = window_at(now, kind, first, second, third)
  if not began then
    for n = i * 4 - 3, i * 4 do reply[n] = 0 end
  else
    local went_back = false
    if not used or now >= ends then
      used = none(counts)
    else
      went_back = start - now > SKEW_US
      if #used ~= counts or counts > 1 and ends - start ~= (edge - began) * counts then
        local total = sum(used)
        used = none(counts)
        used[1] = total
      elseif went_back then
        -- The numbers stay, and belong to the window of the new time.
      elseif kind == 1 then
        if start + first > now then
          began, edge = start, start + first
        else
          used = none(counts)
        end
      elseif start > now then
        edge = start + (ends - start) / counts
        began = start
      elseif counts > 1 and began > start then
        local passed = began - start
        passed = (passed - fmod(passed, edge - began)) / (edge - began)
        used = shifted(used, passed)
      end
    end

    local total = sum(used)
    local added = (of == 0 or of == edge) and min(spent, MOST - total) or 0
    used[1], total = used[1] + added, total + added
    local granted = 0
    if back > 0 then
      if of == edge then granted = -min(back, used[1]) end
    else
      local there = max(limit - total, 0)
      if there >= least then
        if leased > 0 then there = max(least, (there - fmod(there, 2)) / 2) end
        granted = min(most, there)
      end
    end
    used[1], total = used[1] + granted, total + granted
    reply[i * 4 - 3], reply[i * 4 - 2], reply[i * 4 - 1], reply[i * 4] = granted, limit - total, edge, used[counts]
    if granted ~= 0 or added > 0 or went_back then
      ends = edge + (edge - began) * (counts - 1)
      local parts = { pack('>I7I7', began, ends) }
      for n = 1, counts do parts[n + 1] = pack('>I7', used[n]) end
      writes[#writes + 1] = { key, table.concat(parts), ends }
    end
  end
end

for _, write in ipairs(writes) do
  redis.call('SET', write[1], write[2], 'PX', text(math.ceil((write[3] - now) / 1000) + SKEW_US / 1000 + 1))
end
reply[#reply + 1] = now
return reply
