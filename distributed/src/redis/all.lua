-- Steps of buckets and of counts, all or none. `buckets` and `counts` are the scripts of both, with
-- the server's calls as their last parameter.
--
-- KEYS     the buckets, then the counts
-- ARGV[1]  the number of the buckets
-- ARGV[2], ARGV[3]  the specs and the calls of the buckets
-- ARGV[4]  the calls of the counts
-- ARGV[5]  if given, a missing bucket was empty and a missing count used up when the server started
--
-- Returns the answer of the buckets, then that of the counts. If a call is granted no token, none
-- is written.

local writes = {}
local later = {
  call = function(name, ...)
    if name ~= 'SET' then return redis.call(name, ...) end
    writes[#writes + 1] = { name, ... }
  end,
  pcall = redis.pcall,
  error_reply = redis.error_reply,
}
local first, last = {}, {}
for i, key in ipairs(KEYS) do
  local keys = i <= tonumber(ARGV[1]) and first or last
  keys[#keys + 1] = key
end

local reply = buckets(first, { ARGV[2], ARGV[3], ARGV[5] }, later)
if reply.err then return reply end
local others = counts(last, { ARGV[4], ARGV[5] }, later)
if others.err then return others end
local refused = false
for i = 1, #reply - 1, 2 do refused = refused or reply[i] == 0 end
for i = 1, #others - 1, 4 do refused = refused or others[i] == 0 end
if not refused then
  for _, write in ipairs(writes) do redis.call(unpack(write)) end
end
for _, number in ipairs(others) do reply[#reply + 1] = number end
return reply
