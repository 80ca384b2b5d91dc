-- What a script sees, made once for each state of Lua, from the functions that `native` has.
--
-- Nothing that a script does is there for the next one: it runs in an environment whose tables are empty
-- and cannot be written to, and refer to the ones here for what they show. Of these, a script never holds
-- one, only the functions and values in them. The tables of libraries are made when a script names them,
-- since most scripts name one or two. An environment serves the next script, too.
--
-- A run that is to end (see machine.rs) must not be caught: whatever catches an error looks
-- afterwards whether it is, and raises it again.
local native = ...

local G = _G
local error, getmetatable, load, next, rawget, rawset = error, getmetatable, load, next, rawget, rawset
local select, setfenv, setmetatable, type = select, setfenv, setmetatable, type
local pcall, tonumber, tostring, unpack, xpcall = pcall, tonumber, tostring, unpack, xpcall
local byte, find, format, gmatch = string.byte, string.find, string.format, string.gmatch
local gsub, lower, match, rep, sub = string.gsub, string.lower, string.match, string.rep, string.sub
local tobit, tohex = bit.tobit, bit.tohex
local concat, insert, sort = table.concat, table.insert, table.sort
local abs, floor = math.abs, math.floor
local resume, wrap = coroutine.resume, coroutine.wrap
local is_ending, check_stack = native.is_ending, native.check_stack
local lengths, look = native.strings.lengths, native.strings.look
local seek, seek_plain = native.strings.seek, native.strings.seek_plain

jit.off()
if jit.status() then
  error('the compiler of LuaJIT is on: hooks would not run')
end

local ENDING = 'the script is ended'

-- Returns what a native function has returned behind its first value: true. If that is false, the
-- second is the text of an error that says where it is; if nil, of one that does not.
local function finish(ok, ...)
  if ok then
    return ...
  end
  if is_ending() then
    error(ENDING, 0)
  end
  if ok == nil then
    error({ err = (...) }, 0)
  end
  error((...), 2)
end

-- Passes on what a function has returned that catches errors.
local function passed(...)
  if is_ending() then
    error(ENDING, 0)
  end
  return ...
end

-- What calls Lua from C takes some of the machine's stack, which ends without a warning.
local function check()
  if not check_stack() then
    error('C stack overflow', 3)
  end
end

local function caught(ok, ...)
  if is_ending() then
    error(ENDING, 0)
  end
  if ok then
    return true, ...
  end
  local problem = ...
  local text = type(problem) == 'table' and rawget(problem, 'err')
  if type(text) == 'string' then
    return false, text
  end
  return false, ...
end

-- Returns the text of the error that an argument has another type.
local function mistyped(place, name, expected, ...)
  local found = select('#', ...) < place and 'no value' or type((select(place, ...)))
  return format("bad argument #%d to '%s' (%s expected, got %s)", place, name, expected, found)
end

-- The environment of what runs, and the table that it looks names up in. The next script finds them as
-- they are, unless `current_names` is nil.
local current, current_names
-- The script or library that runs, and whether its environment may serve the next one.
local running, is_script
-- What the library has registered that is being loaded, in order and by name.
local registered

local base = {
  _VERSION = 'Lua 5.1', assert = assert, error = error, getmetatable = getmetatable, ipairs = ipairs,
  next = next, pairs = pairs, rawequal = rawequal, rawget = rawget, select = select,
  tonumber = tonumber, type = type, unpack = unpack,
}

function base.pcall(...)
  if select('#', ...) == 0 then
    return false, 'attempt to call a boolean value'
  end
  return caught(pcall(...))
end

-- When the hook ends the run, the handler must not run: no hook would end it.
function base.xpcall(...)
  if select('#', ...) < 2 then
    error("bad argument #2 to 'xpcall' (value expected)", 2)
  end
  check()
  local f, handler = ...
  return passed(xpcall(f, function(...)
    if is_ending() then
      return ENDING
    end
    -- An error of the handler calls the handler, if it has caught another one before.
    if not check_stack() then
      return 'C stack overflow'
    end
    return handler(...)
  end, select(3, ...)))
end

function base.tostring(...)
  if type((...)) == 'table' then
    check()
  end
  return tostring(...)
end

function base.rawset(t, ...)
  if type(t) == 'table' and getmetatable(t) == false then
    error({ err = 'ERR Attempt to modify a readonly table' }, 0)
  end
  return rawset(t, ...)
end

function base.setmetatable(...)
  local t, metatable = ...
  if type(t) ~= 'table' then
    error(mistyped(1, 'setmetatable', 'table', ...), 2)
  end
  if select('#', ...) < 2 or metatable ~= nil and type(metatable) ~= 'table' then
    error("bad argument #2 to 'setmetatable' (nil or table expected)", 2)
  end
  if getmetatable(t) == false then
    error({ err = 'ERR Attempt to modify a readonly table' }, 0)
  end
  setmetatable(t, metatable)
  return t
end

-- Only texts are loaded: nobody checks the bytecode of a program.
function base.load(...)
  local chunk, name = ...
  if type(chunk) ~= 'function' then
    error(mistyped(1, 'load', 'function', ...), 2)
  end
  check()
  return passed(load(chunk, name or '=(load)', 't', current))
end

function base.loadstring(...)
  local chunk, name = ...
  if type(chunk) == 'number' then
    chunk = tostring(chunk)
  elseif type(chunk) ~= 'string' then
    error(mistyped(1, 'loadstring', 'string', ...), 2)
  end
  return passed(load(chunk, name or chunk, 't', current))
end

local function only(from, names)
  local library = {}
  for name in names:gmatch('%S+') do
    library[name] = from[name]
  end
  return library
end

local function guarded(functions)
  local library = {}
  for name, f in next, functions do
    library[name] = type(f) ~= 'function' and f or function(...)
      return finish(f(...))
    end
  end
  return library
end

local libraries = {
  cjson = guarded(native.cjson), cmsgpack = guarded(native.cmsgpack),
  bit = only(bit, 'arshift band bnot bor bswap bxor lshift rol ror rshift tobit tohex'),
  coroutine = only(coroutine, 'create running status yield'),
  math = only(math, [[abs acos asin atan atan2 ceil cos cosh deg exp floor fmod frexp huge ldexp log
    log10 max min modf pi pow rad sin sinh sqrt tan tanh]]),
  os = only(os, 'clock'),
  string = only(string, 'byte char len sub'),
  table = only(table, 'foreach foreachi getn maxn remove'),
  redis = guarded(native.redis),
  struct = guarded(native.struct),
}
-- It writes raw, also into what is not to be changed; and a place far below the table moves a place for
-- each number in between.
function libraries.table.insert(list, ...)
  if type(list) == 'table' and getmetatable(list) == false then
    error({ err = 'ERR Attempt to modify a readonly table' }, 0)
  end
  local count = select('#', ...)
  if count == 2 and (tonumber((...)) or 1) < -65536 then
    error("bad argument #2 to 'insert' (position out of bounds)", 2)
  end
  if count == 0 and type(list) == 'table' then
    error("wrong number of arguments to 'insert'", 2)
  end
  return insert(list, ...)
end

-- It has eight digits at most in the version that Redis has.
function libraries.bit.tohex(...)
  local number, digits = ...
  local count = select('#', ...) > 1 and tonumber(digits)
  if not count then
    return tohex(...)
  end
  count = tobit(count)
  return tohex(number, count > 8 and 8 or count < -8 and -8 or count)
end

libraries.server = libraries.redis
-- LuaJIT's own do not look whether they have an argument, and take what lies on the stack.
for _, name in next, { 'ceil', 'floor' } do
  local f = math[name]
  libraries.math[name] = function(...)
    if select('#', ...) == 0 then
      return abs()
    end
    return f(...)
  end
end
-- These are written in Lua, and their errors say so. That of `abs` has the name of what was called.
for _, name in next, { 'deg', 'rad' } do
  local f = math[name]
  libraries.math[name] = function(...)
    local number = tonumber((...))
    if not number then
      return abs(...)
    end
    return f(number)
  end
end
libraries.math.mod = math.fmod
libraries.math.random = guarded(native.math).random
libraries.math.randomseed = guarded(native.math).randomseed

-- These are functions of C (pando-lua): the way of a call is most of what a short script takes.
libraries.redis.call, libraries.redis.pcall = native.call, native.pcall
libraries.redis.acl_check_cmd = native.check

function libraries.string.format(...)
  for place = 1, select('#', ...) do
    if type((select(place, ...))) == 'table' then
      check()
    end
  end
  return format(...)
end

-- Searches. What LuaJIT does by itself looks at no clock, so it gets only texts that are short for
-- their pattern: `quick` has the greatest length up to which it takes no time that matters,
-- `most_lengths` that up to which it is called if the clock is looked at now and then.
local quick, most_lengths, pattern_count = {}, {}, 0
local PATTERNS_MAX, PATTERN_BYTES_MAX = 256, 64
-- Of `seek`.
local ANCHORS, PERHAPS_USED = 1, 2

-- Calls of functions that may take milliseconds, before the clock is looked at again.
local UNSEEN_MAX = 8
local unseen = UNSEEN_MAX

local function look_now()
  if look() then
    error(ENDING, 0)
  end
end

local function look_sometimes()
  unseen = unseen - 1
  if unseen < 0 then
    unseen = UNSEEN_MAX
    look_now()
  end
end

local function most_length(p)
  if most_lengths[p] then
    return most_lengths[p]
  end
  local soon, most = lengths(p)
  if #p <= PATTERN_BYTES_MAX then
    if pattern_count == PATTERNS_MAX then
      quick, most_lengths, pattern_count = {}, {}, 0
    end
    quick[p], most_lengths[p], pattern_count = soon, most, pattern_count + 1
  end
  return most
end

-- Returns text and pattern, which may be numbers; nothing if LuaJIT is to say what is wrong.
local function searched(s, p)
  s = type(s) == 'number' and tostring(s) or s
  p = type(p) == 'number' and tostring(p) or p
  if type(s) == 'string' and type(p) == 'string' then
    return s, p
  end
end

local function is_short(s, p)
  if #s > most_length(p) then
    return false
  end
  look_sometimes()
  return true
end

-- Passes on what `seek` has returned to a function that the script has called itself.
local function sought(ok, ...)
  if ok then
    return ...
  end
  if is_ending() then
    error(ENDING, 0)
  end
  error((...), 3)
end

local function passed_on(...)
  return ...
end

-- Returns what is matched: the captures, or all if there are none.
local function matched(s, from, to, ...)
  if from and select('#', ...) == 0 then
    return sub(s, from, to)
  elseif from then
    return ...
  end
  return nil
end

local function find_long(...)
  local s, p = searched(...)
  local _, _, init, is_plain = ...
  init = init == nil and 1 or tonumber(init)
  if not s or not init or is_short(s, p) then
    return find(...)
  end
  if is_plain or not find(p, '[%^%$%*%+%?%.%(%[%%%-]') then
    local at = sought(seek_plain(s, p, init))
    if at then
      return at, at + #p - 1
    end
    return nil
  end
  return passed_on(sought(seek(s, p, init, ANCHORS)))
end

function libraries.string.find(...)
  local s, p = ...
  local most = quick[p]
  if most and type(s) == 'string' and #s <= most then
    return find(...)
  end
  return find_long(...)
end

local function match_long(...)
  local s, p = searched(...)
  local _, _, init = ...
  init = init == nil and 1 or tonumber(init)
  if not s or not init or is_short(s, p) then
    return match(...)
  end
  return matched(s, sought(seek(s, p, init, ANCHORS)))
end

function libraries.string.match(...)
  local s, p = ...
  local most = quick[p]
  if most and type(s) == 'string' and #s <= most then
    return match(...)
  end
  return match_long(...)
end

-- Here a `^` means itself, so such patterns have other lengths.
local function gmatch_long(...)
  local s, p = searched(...)
  if not s then
    return gmatch(...)
  end
  if byte(p) ~= 94 and #s <= most_length(p) then
    local go = gmatch(s, p)
    return function()
      look_sometimes()
      return go()
    end
  end
  local at = 1
  local function advance(from, to, ...)
    if not from then
      at = #s + 2
      return
    end
    at = to < from and to + 2 or to + 1
    return matched(s, from, to, ...)
  end
  return function()
    if at <= #s + 1 then
      return advance(sought(seek(s, p, at, 0)))
    end
  end
end

function libraries.string.gmatch(...)
  local s, p = ...
  local most = quick[p]
  if most and type(s) == 'string' and #s <= most and byte(p) ~= 94 then
    return gmatch(...)
  end
  return gmatch_long(...)
end
libraries.string.gfind = libraries.string.gmatch

-- Returns how often C replaces, as it is told.
local function times(most)
  if not (most > -2 ^ 63 and most < 2 ^ 63) then
    return 0
  end
  most = most < 0 and -floor(-most) or floor(most)
  most = most % 2 ^ 32
  return most < 2 ^ 31 and most or 0
end

-- Returns a capture; nil and what is wrong if there is none.
local function captured(found, place, whole)
  local count = found[3]
  if place == 0 or place == 1 and count == 0 then
    return whole
  elseif place > count then
    return nil, 'invalid capture index'
  elseif found[3 + place] == nil then
    return nil, 'unfinished capture'
  end
  return found[3 + place]
end

-- Returns what the text `template` stands for; nil and what is wrong with it.
local function expanded(template, found, whole)
  local problem
  local text = gsub(template, '%%(.?)', function(letter)
    local place = tonumber(letter)
    if not place then
      -- The byte behind a text of C is a zero.
      return letter == '' and '\0' or letter
    end
    local value, wrong = captured(found, place, whole)
    problem = problem or wrong
    return value or ''
  end)
  if problem then
    return nil, problem
  end
  return text
end

-- Returns what is put into the place of a match; nil and what is wrong if nothing can be.
local function replacement(by, found, whole)
  local kind, value = type(by), nil
  if kind == 'string' or kind == 'number' then
    return expanded(by, found, whole)
  elseif kind == 'function' then
    for place = 1, found[3] do
      local _, problem = captured(found, place, whole)
      if problem then
        return nil, problem
      end
    end
    if found[3] == 0 then
      value = by(whole)
    else
      value = by(unpack(found, 4, 3 + found[3]))
    end
  else
    local key, problem = captured(found, 1, whole)
    if problem then
      return nil, problem
    end
    value = by[key]
  end
  if not value then
    return whole
  elseif type(value) ~= 'string' and type(value) ~= 'number' then
    return nil, 'invalid replacement value (a ' .. type(value) .. ')'
  end
  return value
end

local REPLACEMENTS = { string = true, number = true, ['function'] = true, table = true }

local function gsub_long(...)
  local s, p = searched(...)
  local _, _, by, most = ...
  most = most == nil and s and #s + 1 or tonumber(most)
  if not s or not most or not REPLACEMENTS[type(by)] or is_short(s, p) then
    return gsub(...)
  end
  most = times(most)
  -- Pieces are put together when there are many, since each takes a place in a table.
  local pieces, count, texts = {}, 0, {}
  local function add(piece)
    count = count + 1
    pieces[count] = piece
    if count == 256 then
      texts[#texts + 1], count = concat(pieces, '', 1, count), 0
    end
  end
  local at, replaced = 1, 0
  while replaced < most do
    local found = { sought(seek(s, p, at, ANCHORS + PERHAPS_USED)) }
    local from, to = found[1], found[2]
    if not from then
      break
    end
    replaced = replaced + 1
    add(sub(s, at, from - 1))
    local value, problem = replacement(by, found, sub(s, from, to))
    if problem then
      error(problem, 2)
    end
    add(value)
    at = to + 1
    if to < from then
      add(sub(s, from, from))
      at = from + 1
    end
    if from > #s or byte(p) == 94 then
      break
    end
  end
  add(sub(s, at))
  texts[#texts + 1] = concat(pieces, '', 1, count)
  return concat(texts), replaced
end

function libraries.string.gsub(...)
  local s, p, by = ...
  if type(by) ~= 'string' then
    check()
  end
  local most = quick[p]
  if most and type(s) == 'string' and #s <= most then
    return gsub(...)
  end
  return gsub_long(...)
end

-- What copies or reads whole texts takes as long as they are.
local LONG_BYTES = 65536

function libraries.string.rep(...)
  local s, count = ...
  if type(s) ~= 'string' or type(count) ~= 'number' then
    return rep(...)
  end
  if #s * count > LONG_BYTES then
    look_now()
  end
  -- LuaJIT makes a negative number of one that is greater, and an empty string of that.
  return rep(s, count < 2147483647 and count or 2147483647)
end

for _, name in next, { 'lower', 'reverse', 'upper' } do
  local f = string[name]
  libraries.string[name] = function(...)
    local s = ...
    if type(s) == 'string' and #s > LONG_BYTES then
      look_now()
    end
    return f(...)
  end
end

function libraries.table.concat(...)
  look_sometimes()
  return concat(...)
end

function libraries.table.sort(...)
  check()
  look_now()
  return sort(...)
end

function libraries.coroutine.resume(...)
  check()
  return passed(resume(...))
end

function libraries.coroutine.wrap(f)
  local go = wrap(f)
  return function(...)
    check()
    return go(...)
  end
end

-- The metatables of what a script holds in place of the tables above.
local function refuse()
  error('Attempt to modify a readonly table', 2)
end

local shown = {}
for name, library in next, libraries do
  shown[name] = { __index = library, __newindex = refuse, __metatable = false }
end

local function missing(_, name)
  if type(name) == 'number' then
    name = tostring(name)
  elseif type(name) ~= 'string' then
    name = type(name)
  end
  error(format("Script attempted to access nonexistent global variable '%s'", name), 2)
end
-- The metatable of tables that have all that there is.
local complete = { __index = missing }

-- Finds what a script names for the first time.
local function first_use(names, name)
  local value
  if name == '_G' then
    value = current
  elseif shown[name] then
    value = setmetatable({}, shown[name])
  elseif is_script and (name == 'KEYS' or name == 'ARGV') then
    value = {}
  else
    return missing(names, name)
  end
  current_names[name] = value
  return value
end
local of_base = { __index = setmetatable(base, { __index = first_use }) }

-- Makes the environment of a run, and returns its metatable.
local function environment(keys, argv)
  current_names = setmetatable({ KEYS = keys, ARGV = argv }, of_base)
  local metatable = { __index = current_names, __newindex = refuse, __metatable = false }
  current = setmetatable({}, metatable)
  return metatable
end

-- ("x"):rep(3) finds its functions here, too.
local of_strings = getmetatable('')
of_strings.__index, of_strings.__metatable = libraries.string, false

function native.load(source, name)
  return load(source, name, 't')
end

local nothing = {}

-- Behind a run that has not returned: what runs next begins anew. Other scripts may refer to this
-- environment until they run again, so what the run has had in it goes now.
function native.forget()
  if running then
    setfenv(running, nothing)
  end
  if is_script and current_names then
    current_names.KEYS, current_names.ARGV = nil, nil
  end
  current, current_names, running, registered, is_script = nil, nil, nil, nil, false
end

local forget = native.forget

-- Behind a run that has returned. Nothing can be written into the environment, nor into the tables of
-- libraries in it, so the next script finds what this one has found.
function native.after()
  if not is_script then
    return forget()
  end
  current_names.KEYS, current_names.ARGV, running = nil, nil, nil
end

function native.run(f, keys, argv)
  if current_names then
    current_names.KEYS, current_names.ARGV = keys, argv
  else
    environment(keys, argv)
  end
  running, is_script = f, true
  setfenv(f, current)
  return f()
end

-- Libraries of functions. A library finds nothing but `redis` while it is loaded, and of that only
-- what follows; its functions find what a script finds, but for KEYS and ARGV.

local FLAGS = {
  ['no-writes'] = 1, ['allow-oom'] = 2, ['allow-stale'] = 4, ['no-cluster'] = 8,
  ['allow-cross-slot-keys'] = 16,
}

local function not_registered(text)
  error({ err = 'ERR ' .. text }, 0)
end

-- Returns the string that C finds in a value, which may be a number.
local function string_in(value, text)
  if type(value) == 'number' then
    return tostring(value)
  end
  return type(value) == 'string' and value or not_registered(text)
end

local function flags_in(value)
  if type(value) ~= 'table' then
    not_registered('flags argument to redis.register_function must be a table representing ' ..
      'function flags')
  end
  local flags, place = {}, 1
  while value[place] ~= nil do
    local name = value[place]
    local flag = (type(name) == 'string' or type(name) == 'number') and FLAGS[lower(name)]
    if not flag then
      not_registered('unknown flag given')
    end
    flags[flag] = true
    place = place + 1
  end
  local sum = 0
  for flag in next, flags do
    sum = sum + flag
  end
  return sum
end

local function function_in(value, text)
  return type(value) == 'function' and value or not_registered(text)
end

local STRING = ' argument given to redis.register_function must be a string'
local FUNCTION = ' argument given to redis.register_function must be a function'

-- Returns what the only argument says.
local function named(options)
  if type(options) ~= 'table' then
    not_registered('calling redis.register_function with a single argument is only applicable ' ..
      'to Lua table (representing named arguments).')
  end
  local of = {}
  for key, value in next, options do
    if type(key) ~= 'string' and type(key) ~= 'number' then
      not_registered('named argument key given to redis.register_function is not a string')
    end
    key = lower(key)
    if key == 'function_name' then
      of.name = string_in(value, 'function_name' .. STRING)
    elseif key == 'description' then
      of.description = string_in(value, 'description' .. STRING)
    elseif key == 'callback' then
      of.callback = function_in(value, 'callback' .. FUNCTION)
    elseif key == 'flags' then
      of.flags = flags_in(value)
    else
      not_registered('unknown argument given to redis.register_function')
    end
  end
  if not of.name then
    not_registered('redis.register_function must get a function name argument')
  end
  if not of.callback then
    not_registered('redis.register_function must get a callback argument')
  end
  return of
end

local function check_loading()
  if not registered then
    not_registered('redis.register_function can only be called on FUNCTION LOAD command')
  end
end

local function register_function(...)
  check_loading()
  local count = select('#', ...)
  if count < 1 or count > 2 then
    not_registered('wrong number of arguments to redis.register_function')
  end
  local name, callback = ...
  local of = count == 1 and named(name) or {
    name = string_in(name, 'first argument to redis.register_function must be a string'),
    callback = function_in(callback,
      'second argument to redis.register_function must be a function'),
  }
  if not find(of.name, '^[A-Za-z0-9_]+$') then
    not_registered('Library names can only contain letters, numbers, or underscores(_) and must ' ..
      'be at least one character long')
  end
  if #of.name > native.name_bytes_max then
    not_registered(format('the name of a function has %d characters at most', native.name_bytes_max))
  end
  if #(of.description or '') > native.description_bytes_max then
    not_registered(format('the description of a function has %d bytes at most',
      native.description_bytes_max))
  end
  if registered.by_name[of.name] then
    not_registered('Function already exists in the library')
  end
  if #registered >= native.functions_max then
    not_registered(format('a library has %d functions at most', native.functions_max))
  end
  registered[#registered + 1] = of
  registered.by_name[of.name] = of
end

-- The same for a call, which needs the callbacks only: what was checked when the library was loaded
-- is not checked again.
local function remember(name, callback)
  check_loading()
  if type(name) == 'table' then
    local options = name
    for key, value in next, options do
      key = lower(key)
      if key == 'function_name' then
        name = value
      elseif key == 'callback' then
        callback = value
      end
    end
  end
  name = tostring(name)
  local key = lower(name)
  local other = registered.names[key]
  -- Names that differ in case only are all called alike: the first one, in the order of bytes.
  if not other or name < other then
    registered.names[key], registered.by_name[key] = name, callback
  end
end

-- The metatable of what a library holds as `redis`.
local function while_loading(log, register)
  local library = only(libraries.redis, [[LOG_DEBUG LOG_VERBOSE LOG_NOTICE LOG_WARNING REDIS_VERSION
    REDIS_VERSION_NUM]])
  library.log, library.register_function = log, register
  setmetatable(library, complete)
  return { __index = library, __newindex = refuse, __metatable = false }
end

local at_load = while_loading(libraries.redis.log, register_function)
-- While it is loaded for a call it does not log, since it did when it was loaded.
local at_call = while_loading(function(...)
  if not registered then
    return libraries.redis.log(...)
  end
end, remember)

-- Makes the environment of a library, in which it registers its functions. Returns its metatable.
local function library_environment(f, of_redis)
  local names = setmetatable({ redis = setmetatable({}, of_redis) }, complete)
  local metatable = { __index = names, __newindex = refuse, __metatable = false }
  current, current_names, registered = setmetatable({}, metatable), nil, { by_name = {}, names = {} }
  running, is_script = f, false
  setfenv(f, current)
  return metatable
end

function native.register(f)
  library_environment(f, at_load)
  local ok, problem = xpcall(f, native.handle)
  local list = registered
  native.forget()
  return ok, ok and list or problem
end

-- What a call changes in the variables of its library is gone with it: each begins with the library
-- as it was loaded.
function native.call_function(f, name, keys, argv) -- the name in lower case
  local metatable = library_environment(f, at_call)
  f()
  local callback = registered.by_name[name]
  registered = nil
  if not callback then
    return { err = 'ERR Function not found' }
  end
  -- Its functions find what a script finds, in the environment that they were made in.
  local of_library = current
  metatable.__index = environment().__index
  current = of_library
  return callback(keys or {}, argv or {})
end

for name in next, G do
  G[name] = nil
end
