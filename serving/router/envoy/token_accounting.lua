-- Counts the tokens of requests to OpenAI's API, and those that wait, by backend. At the address of a namespace's
-- models it also routes a request by the model that its body names.
--
-- A request is read as a whole, as its members may stand behind the prompt. An answer passes as it comes, except
-- for the beginning of an event whose end has not arrived. The script does not run when a request is aborted:
-- the access log then settles the dynamic metadata `left` (see token_accounting.py).

local NAMESPACE = "slipway.tokens"
local EPOCH_MS = 1767225600000  -- 2026-01-01, so that sums of start times stay small
local GAIN = 0.05               -- weight of a new answer in the learned means
local OUTPUT_TOKENS = 128       -- expected length of the first answer
local BYTES_PER_TOKEN = 4       -- of the first prompt
local STEP = 8                  -- generated tokens between two updates of `left`, which cost more than counting
local MAX_PARTS = 20000         -- parts of a request's JSON that are read: bounds the time of a hostile one
local MAX_VALUE = 65536         -- bytes of a value of a request that is read; those that matter are shorter
local MAX_EVENT = 65536         -- bytes; a longer event passes unread
local MAX_USAGE = 2048          -- bytes of the numbers of tokens of an answer
local MAX_TOKENS = 1000000000   -- of one request; a higher number is an error

-- By backend, learned by this worker: mean tokens of an answer, mean bytes of a prompt's token, and generated
-- tokens that were counted and do not exist.
local output_means, byte_means, surpluses = {}, {}, {}
-- Statistics by backend and name: looking one up takes longer than counting. They live as long as the listener.
local counters, histograms = {}, {}

local function table_of(tables, id)
  local own = tables[id]
  if not own then
    own = {}
    tables[id] = own
  end
  return own
end

local function count(handle, id, name, number)
  if number <= 0 then return end
  local own = table_of(counters, id)
  local counter = own[name]
  if not counter then
    counter = handle:stats():counter(id .. "." .. name)
    own[name] = counter
  end
  counter:add(number)
end

local function observe(handle, id, name, microseconds)
  local own = table_of(histograms, id)
  local histogram = own[name]
  if not histogram then
    histogram = handle:stats():histogram(id .. "." .. name, "microseconds")
    own[name] = histogram
  end
  histogram:recordValue(math.max(0, microseconds))
end

local function now(handle)
  return tonumber(handle:timestampString(EnvoyTimestampResolution.MICROSECOND))
end

-- Updates a mean: of all samples at first, later of some 20.
local function learn(means, id, sample, initial)
  local known = means[id] or {mean = initial, samples = 1}
  known.samples = known.samples + 1
  known.mean = known.mean + math.max(GAIN, 1 / known.samples) * (sample - known.mean)
  means[id] = known
end

local function mean_of(means, id, initial)
  local known = means[id]
  return known and known.mean or initial
end

local SPACES = {[9] = true, [10] = true, [13] = true, [32] = true}  -- of JSON

local function token_number(text)
  local number = tonumber(text)
  return number and number >= 0 and number <= MAX_TOKENS and math.floor(number) or nil
end

-- Returns the position behind the JSON string that begins at `at`, or nil without its end.
local function after_string(text, at)
  local quote = at
  while true do
    quote = text:find('"', quote + 1, true)
    if not quote then return nil end
    local other = quote - 1
    while text:byte(other) == 92 do other = other - 1 end  -- backslashes
    if (quote - other) % 2 == 1 then return quote + 1 end
  end
end

-- Returns the first and last positions of the values of a JSON object by member, and the position behind its
-- brace; nil if the text is no object or has too many parts.
local function members(text)
  local first = text:match("^%s*{()")
  if not first then return nil end
  local values, at, depth, key, start = {}, first, 1, nil, nil
  for _ = 1, MAX_PARTS do
    local part = text:find('["{}%[%],:]', at)
    if not part then return nil end
    local byte = text:byte(part)
    if byte == 34 then  -- a quote
      at = after_string(text, part)
      if not at then return nil end
      if depth == 1 and not start then key = text:sub(part + 1, at - 2) end
    else
      at = part + 1
      if byte == 123 or byte == 91 then  -- { and [
        depth = depth + 1
      elseif byte == 58 then  -- a colon
        if depth == 1 then start = at end
      else
        if depth == 1 and key and start then
          values[key] = {start, part - 1}
          key, start = nil, nil
        end
        if byte ~= 44 then  -- } and ]
          depth = depth - 1
          if depth == 0 then return values, first end
        end
      end
    end
  end
  return nil
end

-- Returns a value without the spaces around it; nil if it is too long with them.
local function value(text, values, name)
  local range = values[name]
  if not range or range[2] - range[1] >= MAX_VALUE then return nil end
  local first, last = text:find("%S", range[1]), range[2]
  if not first or first > last then return nil end
  while text:find("^%s", last) do last = last - 1 end  -- `^(.-)%s*$` would be quadratic
  return text:sub(first, last)
end

-- Returns the request with stream options that ask for the numbers of tokens.
local function with_usage(text, values, first, continuous)
  local options = '{"include_usage":true' .. (continuous and ',"continuous_usage_stats":true}' or "}")
  local range = values["stream_options"]
  if range then return text:sub(1, range[1] - 1) .. options .. text:sub(range[2] + 1) end
  return text:sub(1, first - 1) .. '"stream_options":' .. options .. "," .. text:sub(first)
end

local function respond(handle, status, document)
  handle:streamInfo():dynamicMetadata():set(NAMESPACE, "reply", true)
  handle:respond({[":status"] = status, ["content-type"] = "application/json"}, document)
end

local function no_model(handle, name)
  local shown = name:gsub("[^%w%.%-_]", "?"):sub(1, 80)
  respond(handle, "404", '{"error":{"message":"the model `' .. shown .. '` does not exist","type":'
    .. '"invalid_request_error","param":"model","code":"model_not_found"}}')
end

-- Routes a request to the service that its `model` names.
local function route_by_model(handle, base, models)
  local headers = handle:headers()
  local path = headers:get(":path")
  local rest = path:match("^/[^/]+/[^/]+(/v1/[^?]*)") or ""
  local asked = rest:match("^/v1/models/(.+)$")
  if headers:get(":method") == "GET" and (asked or rest == "/v1/models") then
    if not asked then return respond(handle, "200", '{"object":"list","data":[' .. models["*"] .. "]}") end
    if not models[asked] or asked == "*" then return no_model(handle, asked) end
    return respond(handle, "200", models[asked])
  end
  local body = handle:body()
  local text = body and body:getBytes(0, body:length()) or ""
  local values = members(text)
  local name = values and (value(text, values, "model") or ""):match('^"(.*)"$')
  if not name then
    return respond(handle, "400", '{"error":{"message":"the body must be a JSON object with a `model`","type":'
      .. '"invalid_request_error","param":"model","code":null}}')
  end
  if not models[name] or name == "*" then return no_model(handle, name) end
  handle:headers():replace(":path", base .. name .. rest)
  handle:clearRouteCache()
end

function envoy_on_request(handle)
  local context, headers = handle:filterContext(), handle:headers()
  local base = context:get("base")
  if base then return route_by_model(handle, base, context:get("models")) end
  local id, continuous = context:get("id"), context:get("continuous")
  local path = (headers:get(":path") or ""):match("^[^?]*")
  local is_generation = path:find("/v1/chat/completions$") or path:find("/v1/completions$")
  if not id or not is_generation or headers:get(":method") ~= "POST" then return end
  local begun = now(handle)
  local body = handle:body()
  if not body then return end
  local text = body:getBytes(0, body:length())
  local values, first = members(text)
  values = values or {}
  local options = value(text, values, "stream_options") or ""
  local has_usage = options:find('"include_usage"%s*:%s*true') ~= nil
  local has_each = options:find('"continuous_usage_stats"%s*:%s*true') ~= nil
  local strip = value(text, values, "stream") == "true" and not (has_usage and (has_each or not continuous))
  if strip then body:setBytes(with_usage(text, values, first, continuous)) end
  local prompt = values["messages"] or values["prompt"] or {1, #text}
  local bytes = prompt[2] - prompt[1] + 1
  local limit = token_number(value(text, values, "max_completion_tokens") or value(text, values, "max_tokens"))
  local request = {
    id = id,
    begun = begun,
    bytes = bytes,
    has_usage = has_usage,
    strip = strip,
    prompt = math.ceil(bytes / mean_of(byte_means, id, BYTES_PER_TOKEN)),
    output = math.ceil(math.min(mean_of(output_means, id, OUTPUT_TOKENS), limit or MAX_TOKENS)),
    started = math.max(0, math.floor((begun / 1000 - EPOCH_MS) / 100)),
  }
  local metadata = handle:streamInfo():dynamicMetadata()
  metadata:set(NAMESPACE, "request", request)
  metadata:set(NAMESPACE, "left", {
    prompt = request.prompt, output = request.output, requests = 1, started = request.started, unread = 0,
  })
  count(handle, id, "prompt_admitted", request.prompt)
  count(handle, id, "output_admitted", request.output)
  count(handle, id, "requests_admitted", 1)
  count(handle, id, "started_admitted", request.started)
end

-- Counts generated tokens; a negative number is subtracted from those of later answers.
local function count_generated(handle, id, number)
  local total = number - (surpluses[id] or 0)
  count(handle, id, "generated_tokens", total)
  surpluses[id] = math.max(0, -total)
end

-- Returns the first and last positions of the first member `name` from `at` on, without its colon. Searches begin
-- behind the quote of the name, as quotes are frequent. In a JSON string that quote would be escaped.
local function find_member(text, name, at)
  local first, last = text:find(name, at, true)
  while first do
    if text:byte(first - 1) == 34 and text:byte(first - 2) ~= 92 then return first - 1, last end
    first, last = text:find(name, last + 1, true)
  end
end

-- Returns the first and last positions of the last member `usage` of a JSON text and its object; nil if there is
-- none. Of many members only three are tried: each attempt may read MAX_USAGE bytes.
local function find_usage(text)
  local name, second, third = nil, nil, nil
  local first, last = find_member(text, 'usage"', 1)
  while first do
    name, second, third = first, name, second
    first, last = find_member(text, 'usage"', last + 1)
  end
  while name do
    local member = text:sub(name, name + MAX_USAGE)
    local _, length, object = member:find('^"usage"%s*:%s*(%b{})')
    if not object then _, length = member:find('^"usage"%s*:%s*null') end
    if length then return name, name + length - 1, object end
    name, second, third = second, third, nil
  end
end

-- Returns the number of tokens that is a member of a `usage`, or nil.
local function number_of(usage, name)
  local _, last = find_member(usage, name, 1)
  return last and token_number(usage:match("^%s*:%s*(%d+)", last + 1))
end

-- Returns a JSON object without the member at these positions.
local function without(text, first, last)
  local before = first - 1
  while SPACES[text:byte(before)] do before = before - 1 end
  if text:byte(before) == 44 then return text:sub(1, before - 1) .. text:sub(last + 1) end
  return text:sub(1, first - 1) .. text:sub(last + 1):gsub("^%s*,%s*", "")
end

local function has_no_choices(event)
  local _, last = find_member(event, 'choices"', 1)
  return last and event:find("^%s*:%s*%[%s*%]", last + 1) ~= nil
end

-- Members of an event whose text, or whose presence, is an output of the model.
local TEXTS = {'content"', 'text"', 'reasoning_content"', 'reasoning"', 'arguments"'}

local function has_output(event)
  for _, name in ipairs(TEXTS) do
    local _, last = find_member(event, name, 1)
    if last and event:find('^%s*:%s*"[^"]', last + 1) then return true end
  end
  local _, last = find_member(event, 'tool_calls"', 1)
  return last ~= nil and event:find("^%s*:%s*%[%s*{", last + 1) ~= nil
end

-- One streamed answer.
local Answer = {}
Answer.__index = Answer

function Answer.new(handle, request)
  return setmetatable({
    handle = handle,
    request = request,
    id = request.id,
    generated = 0,
    recorded = 0,  -- generated tokens that `left` does not have any more
    last = nil,    -- time of the last token
    is_changed = false,  -- whether `left` differs from the recorded one
    left = {prompt = request.prompt, output = request.output, requests = 1, started = request.started, unread = 0},
  }, Answer)
end

-- Counts an event, and returns what the client gets of it, or nil.
function Answer:take(event)
  local first, last, usage = find_usage(event)
  local total = usage and (number_of(usage, 'completion_tokens"') or 0)
  local number = total and total - self.generated or (has_output(event) and 1 or 0)
  if number > 0 then self:progress(number) end
  if number ~= 0 then count_generated(self.handle, self.id, number) end
  self.generated = self.generated + number
  if usage and not self.prompt then self:read_prompt(number_of(usage, 'prompt_tokens"')) end
  if not self.request.strip or not first then return event end
  if has_no_choices(event) then return self.request.has_usage and event or nil end
  return without(event, first, last)
end

function Answer:progress(number)
  local time, left = now(self.handle), self.left
  if self.last then
    local each = math.floor((time - self.last) / number)
    for _ = 1, math.min(number, STEP) do observe(self.handle, self.id, "inter_token_us", each) end
  else
    observe(self.handle, self.id, "first_token_us", time - self.request.begun)
    count(self.handle, self.id, "prompt_settled", left.prompt)
    count(self.handle, self.id, "requests_settled", 1)
    count(self.handle, self.id, "started_settled", left.started)
    left.prompt, left.requests, left.started, left.unread = 0, 0, 0, left.prompt
    self.is_changed = true
  end
  self.last = time
end

function Answer:read_prompt(number)
  if not number then return end
  self.prompt = number
  count(self.handle, self.id, "prompt_tokens", number)
  if number > 0 then learn(byte_means, self.id, self.request.bytes / number, BYTES_PER_TOKEN) end
  self.left.unread = 0
  self.is_changed = true
end

-- Takes the generated tokens off `left`, if there are `least` new ones or no more are expected, and records `left`
-- if it has changed.
function Answer:settle(least)
  local settled = math.min(self.generated, self.request.output)
  local more = settled - self.recorded
  if more >= least or (more > 0 and settled == self.request.output) then
    count(self.handle, self.id, "output_settled", more)
    self.recorded, self.left.output = settled, self.request.output - settled
    self.is_changed = true
  end
  if self.is_changed then
    self.handle:streamInfo():dynamicMetadata():set(NAMESPACE, "left", self.left)
    self.is_changed = false
  end
end

-- Returns the last position of the empty line that ends an event; lines end with LF, or also with CRLF.
local function end_of_event(text, at, has_returns)
  local _, last = text:find(has_returns and "\n\r?\n" or "\n\n", at, not has_returns)
  return last
end

local function read_stream(handle, request)
  local answer, rest = Answer.new(handle, request), ""
  for chunk in handle:bodyChunks() do
    local text = chunk:getBytes(0, chunk:length())
    if rest ~= "" then text = rest .. text end
    local has_returns = text:find("\r", 1, true) ~= nil
    local last = end_of_event(text, math.max(1, #rest - 1), has_returns)
    if last == #text then  -- the usual case
      local event = answer:take(text)
      if request.strip and (rest ~= "" or event ~= text) then chunk:setBytes(event or "") end
      rest = ""
    else
      local parts, at = {}, 1
      while last do
        parts[#parts + 1] = answer:take(text:sub(at, last))
        at = last + 1
        last = end_of_event(text, at, has_returns)
      end
      rest = text:sub(at)
      if #rest > MAX_EVENT then
        parts[#parts + 1], rest = rest, ""
      end
      if request.strip then chunk:setBytes(table.concat(parts)) end
    end
    answer:settle(STEP)
  end
  answer:settle(1)
  if answer.generated > 0 then learn(output_means, request.id, answer.generated, OUTPUT_TOKENS) end
end

local function read_whole(handle, request)
  local text = ""
  for chunk in handle:bodyChunks() do
    local from = math.max(0, chunk:length() - MAX_EVENT)
    text = (text .. chunk:getBytes(from, chunk:length() - from)):sub(-MAX_EVENT)
  end
  local _, _, usage = find_usage(text)
  if not usage then return end
  local prompt, generated = number_of(usage, 'prompt_tokens"') or 0, number_of(usage, 'completion_tokens"') or 0
  count(handle, request.id, "prompt_tokens", prompt)
  count_generated(handle, request.id, generated)
  if prompt > 0 then learn(byte_means, request.id, request.bytes / prompt, BYTES_PER_TOKEN) end
  learn(output_means, request.id, generated, OUTPUT_TOKENS)
end

function envoy_on_response(handle)
  if not handle:filterContext():get("id") then return end
  local ours = handle:streamInfo():dynamicMetadata():get(NAMESPACE)
  local request, headers = ours and ours["request"], handle:headers()
  if not request or headers:get(":status") ~= "200" then return end
  if (headers:get("content-type") or ""):find("text/event-stream", 1, true) then
    if request.strip then headers:remove("content-length") end
    read_stream(handle, request)
  else
    read_whole(handle, request)
  end
end
