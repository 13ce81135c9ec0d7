-- Counts answers by status, and prints the longest time of one in microseconds. The argument is the
-- pause of a connection before each request, in milliseconds.

local threads = {}

function setup(thread)
  table.insert(threads, thread)
end

-- Each thread has its own Lua state, of which `done` reads only globals.
function init(args)
  counts = {}
  pause = tonumber(args[1])
end

function delay()
  return pause
end

function response(status)
  counts[status] = (counts[status] or 0) + 1
end

function done(summary, latency)
  for _, thread in ipairs(threads) do
    for status, count in pairs(thread:get("counts")) do
      print(string.format("%d %d", status, count))
    end
  end
  print(string.format("longest %d", latency.max))
end
