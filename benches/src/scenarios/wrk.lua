-- Prints a line for a program: requests a second, and microseconds of the median and of p99.
function done(summary, latency, requests)
  local seconds = summary.duration / 1e6
  print(string.format("tollgate %.1f %.1f %.1f", summary.requests / seconds, latency:percentile(50), latency:percentile(99)))
end
