-- Asks `tollgate serve` about a request. It sets the variable `txn.limit_answer` to `allowed`,
-- `refused` or `none`, and those of the headers. `core.httpclient` of HAProxy 2.6 is not used, as it
-- waits 3 s for a service that is gone.
local HOST, PORT = "127.0.0.1", 8080
-- Seconds for each step.
local DEADLINE = 0.05
local QUESTION = "GET /check/edge HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n"
    .. "X-Original-URI: %s\r\nX-Original-Method: %s\r\nX-Real-IP: %s\r\n\r\n"

local function answer_to(question)
    local socket = core.tcp()
    socket:settimeout(DEADLINE)
    local answer = socket:connect(HOST, PORT) and socket:send(question) and socket:receive("*a")
    socket:close()
    return answer or ""
end

core.register_action("limit", { "http-req" }, function(txn)
    local get = txn.sf
    local question = QUESTION:format(get:req_hdr("host"), get:pathq(), get:method(), get:src())
    local answer = answer_to(question)
    local status = answer:match("^HTTP/1%.1 (%d+)")
    -- An answer of 4xx is a refusal. It may be that of a head which the client has made too long.
    local names = { ["2"] = "allowed", ["4"] = "refused" }
    txn:set_var("txn.limit_answer", status and names[status:sub(1, 1)] or "none")
    local headers = { ratelimit = "limit", ["ratelimit-policy"] = "limit_policy", ["retry-after"] = "limit_wait" }
    for name, value in answer:gmatch("\r\n([%w-]+): ([^\r]*)") do
        local variable = headers[name:lower()]
        if variable then
            txn:set_var("txn." .. variable, value)
        end
    end
end, 0)
