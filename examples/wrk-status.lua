-- Counts answers by status, summed over wrk's threads.
--
--   wrk -t2 -c64 -d10s -s examples/wrk-status.lua http://127.0.0.1:8080/
--
-- prints, after wrk's own report, one line for each status such as `200 10999`.

local threads = {}

function setup(thread)
  table.insert(threads, thread)
end

-- Each thread has its own Lua state, of which `done` reads only globals.
function init()
  counts = {}
end

function response(status)
  counts[status] = (counts[status] or 0) + 1
end

function done()
  local sums, statuses = {}, {}
  for _, thread in ipairs(threads) do
    for status, count in pairs(thread:get("counts")) do
      if not sums[status] then
        sums[status] = 0
        table.insert(statuses, status)
      end
      sums[status] = sums[status] + count
    end
  end
  table.sort(statuses)
  for _, status in ipairs(statuses) do
    print(string.format("%d %d", status, sums[status]))
  end
end
