-- The queue in Redis: every change is one run of this script, so it is made as a whole or not at
-- all. The script decides order, room, revisions and leases by Redis's own clock. It cannot read
-- the items themselves: they are signed by the gateways, which decide how an item changes and have
-- a change made only to the revision that they read.
--
-- KEYS: see script.rs. ARGV: the operation, the time after which an unused queue is forgotten (ms),
-- the channel for news, and what the operation needs.

local FACTS, RECORDS, BRIEFS, MARKS, ALL = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local LINES, ENDS, DONE, CALLS, LEASES, SERVERS = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11]
local MOVED = KEYS[12]
local call = redis.call
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local BATCH = 500

local function text(number)
  return string.format('%.0f', number)
end

local function fact(name)
  return tonumber(call('HGET', FACTS, name) or 0)
end

local function decoded(key, field)
  local kept = call('HGET', key, field)
  return kept and cjson.decode(kept)
end

local function mark_of(id)
  return decoded(MARKS, id)
end

local function lease_of(server)
  return decoded(LEASES, server)
end

local function padded(id)
  return string.rep('0', 20 - #id) .. id
end

local function place(id, mark)
  return mark.server .. '\0' .. padded(id)
end

local function is_open(mark)
  return mark.state == 'waiting' or mark.state == 'delivering'
end

local function count(mark, by)
  call('HINCRBY', FACTS, mark.state, by)
  call('HINCRBY', FACTS, 'bytes', by * mark.size)
  if mark.error then
    call('HINCRBY', FACTS, 'wrong', by)
  end
  if is_open(mark) then
    call('HINCRBY', SERVERS, 'open:' .. mark.server, by)
  end
end

-- Enters the item into every index that its state asks for.
local function enter(id, mark)
  count(mark, 1)
  if is_open(mark) then
    call('ZADD', LINES, 0, place(id, mark))
  end
  if mark.over > 0 then
    call('ZADD', ENDS, text(mark.over), id)
  end
  if mark.state == 'delivered' then
    call('ZADD', DONE, id, id)
  end
  if mark.ended > 0 then
    local field = 'ended:' .. mark.server
    local latest = tonumber(call('HGET', SERVERS, field) or 0)
    call('HSET', SERVERS, field, text(math.max(latest, mark.ended)))
  end
end

local function leave(id, mark)
  count(mark, -1)
  call('ZREM', LINES, place(id, mark))
  call('ZREM', ENDS, id)
  call('ZREM', DONE, id)
end

local function forget(id, mark)
  if mark then
    leave(id, mark)
    call('ZREM', CALLS, mark.call .. ':' .. padded(id))
  end
  call('ZREM', DONE, id)
  call('ZREM', ALL, id)
  call('HDEL', RECORDS, id)
  call('HDEL', BRIEFS, id)
  call('HDEL', MARKS, id)
end

-- Gives every key its time to live anew: a queue that nobody uses any more goes away.
local function extend()
  for index = 1, 11 do
    call('PEXPIRE', KEYS[index], ARGV[2])
  end
end

local function tally()
  local found = { text(now) }
  for index, name in ipairs({ 'changes', 'waiting', 'delivering', 'delivered', 'wrong', 'dead' }) do
    found[index + 1] = text(fact(name))
  end
  return found
end

-- After a change: the number of changes grows, everybody is told, and the new counts are returned.
local function changed(word)
  extend()
  call('PUBLISH', ARGV[3], 'changed')
  local found = tally()
  table.insert(found, 1, word)
  return found
end

local function write(id, mark, record, brief)
  mark.rev = text(call('HINCRBY', FACTS, 'changes', 1))
  call('HSET', MARKS, id, cjson.encode(mark))
  call('HSET', RECORDS, id, record)
  call('HSET', BRIEFS, id, brief)
  enter(id, mark)
end

local ops = {}

-- A new id, larger than all before and than the largest one that the asking gateway has seen.
function ops.number(largest)
  local last = math.max(fact('last'), tonumber(largest)) + 1
  call('HSET', FACTS, 'last', text(last))
  extend()
  return { text(now), text(last) }
end

-- Adds an item. Delivered items, the oldest first, make room.
function ops.add(id, mark, record, brief, most_items, most_bytes)
  local moved = MOVED and call('GET', MOVED)
  if moved then
    return { 'moved', moved }
  end
  mark = cjson.decode(mark)
  while true do
    local is_full = call('ZCARD', ALL) >= tonumber(most_items)
    local bytes = fact('bytes')
    if not is_full and bytes + mark.size <= tonumber(most_bytes) then
      break
    end
    local oldest = call('ZRANGE', DONE, 0, 0)[1]
    if not oldest then
      return { is_full and 'items' or 'bytes', text(bytes) }
    end
    forget(oldest, mark_of(oldest))
  end
  call('ZADD', ALL, id, id)
  call('ZADD', CALLS, 0, mark.call .. ':' .. padded(id))
  write(id, mark, record, brief)
  if MOVED then
    call('SET', MOVED, id, 'PX', ARGV[2])
  end
  return changed('done')
end

-- An item, its revision, and the fence of the lease on it.
function ops.read(id)
  local mark = mark_of(id)
  if not mark then
    return { text(now) }
  end
  local lease = lease_of(mark.server)
  local fence = lease and lease.id == id and lease.fence or ''
  return { text(now), mark.rev, fence, call('HGET', RECORDS, id) or '' }
end

-- Changes an item, if it still has the revision that was read. An item that is being sent is changed
-- only under the fence of its lease: by its owner ("own"; "mark": only while the lease lasts), or by
-- whoever finds that the lease has lapsed ("lapsed").
function ops.put(id, rev, how, fence, lease_ms, mark, record, brief)
  local before = mark_of(id)
  if not before or before.rev ~= rev then
    return { 'no' }
  end
  local lease = lease_of(before.server)
  local is_its = lease and lease.id == id and lease.fence == fence
  if how == 'free' then
    if before.state == 'delivering' then
      return { 'no' }
    end
  elseif how == 'lapsed' then
    if lease and lease.id == id and (not is_its or lease.over > now) then
      return { 'no' }
    end
  elseif not is_its or (how == 'mark' and lease.over <= now) then
    return { 'no' }
  end
  if how == 'mark' then
    lease.over = now + tonumber(lease_ms)
    call('HSET', LEASES, before.server, cjson.encode(lease))
  elseif how ~= 'free' and lease and lease.id == id then
    call('HDEL', LEASES, before.server)
  end
  leave(id, before)
  write(id, cjson.decode(mark), record, brief)
  return changed('done')
end

-- The id of the oldest item in a server's line that waits or is being sent.
local function oldest(server)
  while true do
    local from, to = '[' .. server .. '\0', '[' .. server .. '\0\255'
    local head = call('ZRANGEBYLEX', LINES, from, to, 'LIMIT', 0, 1)[1]
    if not head then
      return nil
    end
    local id = string.match(string.sub(head, #server + 2), '^0*(%d+)$') or ''
    local mark = mark_of(id)
    if mark then
      return id, mark
    end
    call('ZREM', LINES, head)
  end
end

function ops.first(server)
  return { oldest(server) or '' }
end

-- The first item of a server's line. With "take" it is leased, if it is the wanted one and due, and
-- nobody has the line.
function ops.head(server, take, wanted, lease_ms)
  local id, mark = oldest(server)
  if not id then
    return { 'none', text(now) }
  end
  local lease = lease_of(server)
  if lease and lease.over > now then
    return { 'later', text(now), text(lease.over - now) }
  end
  local leased = lease and mark_of(lease.id)
  if leased and leased.state == 'delivering' then
    return { 'lapsed', text(now) }
  end
  local record = call('HGET', RECORDS, id) or ''
  if mark.state == 'delivering' then
    return { 'lost', text(now), id, mark.rev, record }
  end
  if mark.due > now then
    return { 'later', text(now), text(mark.due - now) }
  end
  if take ~= 'take' then
    return { 'due', text(now), id, mark.rev, record }
  end
  if wanted ~= '' and wanted ~= id then
    return { 'none', text(now) }
  end
  local fence = text(call('HINCRBY', FACTS, 'fence', 1))
  call('HSET', LEASES, server, cjson.encode({ fence = fence, id = id, over = now + tonumber(lease_ms) }))
  extend()
  return { 'due', text(now), id, mark.rev, record, fence }
end

-- Makes leases last longer that are still their owners'.
function ops.renew(lease_ms, ...)
  local asked, found = { ... }, {}
  for index = 1, #asked, 2 do
    local server, fence = asked[index], asked[index + 1]
    local lease = lease_of(server)
    if lease and lease.fence == fence then
      lease.over = now + tonumber(lease_ms)
      call('HSET', LEASES, server, cjson.encode(lease))
      found[#found + 1] = server
    end
  end
  return found
end

-- Gives a lease back whose item was not sent.
function ops.release(server, fence)
  local lease = lease_of(server)
  local mark = lease and mark_of(lease.id)
  if lease and lease.fence == fence and not (mark and mark.state == 'delivering') then
    call('HDEL', LEASES, server)
    call('HINCRBY', FACTS, 'changes', 1)
    return changed('done')
  end
  return { 'no' }
end

function ops.remove(id, rev)
  local mark = mark_of(id)
  if not mark or mark.rev ~= rev or mark.state == 'delivering' then
    return { 'no' }
  end
  local lease = lease_of(mark.server)
  if lease and lease.id == id then
    call('HDEL', LEASES, mark.server)
  end
  forget(id, mark)
  call('HINCRBY', FACTS, 'changes', 1)
  return changed('done')
end

-- What a gateway has to know each second: the counts, which servers have items or had lately, which
-- leases have lapsed while their item was being sent, and which items are over.
function ops.look(lately)
  local servers = call('HGETALL', SERVERS)
  for index = 1, #servers, 2 do
    local is_ended = string.sub(servers[index], 1, 6) == 'ended:'
    local value = tonumber(servers[index + 1])
    if (is_ended and value + tonumber(lately) < now) or (not is_ended and value <= 0) then
      call('HDEL', SERVERS, servers[index])
    end
  end
  local lapsed, leases = {}, call('HGETALL', LEASES)
  for index = 1, #leases, 2 do
    local lease = cjson.decode(leases[index + 1])
    if lease.over <= now then
      local mark = mark_of(lease.id)
      if mark and mark.state == 'delivering' then
        lapsed[#lapsed + 1] = lease.fence
        lapsed[#lapsed + 1] = lease.id
      elseif lease.over + tonumber(lately) <= now then
        call('HDEL', LEASES, leases[index])
      end
    end
  end
  return { tally(), servers, lapsed, call('ZRANGEBYSCORE', ENDS, '-inf', text(now), 'LIMIT', 0, 50) }
end

-- Summaries after an id in some states, and how far the search went; '' if it reached the end.
function ops.page(after, most, ...)
  local wanted, found, reached = {}, {}, ''
  for _, state in ipairs({ ... }) do
    wanted[state] = true
  end
  local ids = call('ZRANGEBYSCORE', ALL, '(' .. after, '+inf', 'LIMIT', 0, BATCH)
  for index, id in ipairs(ids) do
    local mark = mark_of(id)
    if mark and wanted[mark.state] then
      found[#found + 1] = id
      found[#found + 1] = call('HGET', BRIEFS, id) or ''
    end
    if #found >= 2 * tonumber(most) or index == BATCH then
      reached = id
      break
    end
  end
  return { { reached }, found }
end

-- The newest items with the same call: whole while they are open, summaries once they have ended.
function ops.find(same)
  local found = { text(now) }
  for _, member in ipairs(call('ZREVRANGEBYLEX', CALLS, '[' .. same .. ':\255', '[' .. same .. ':', 'LIMIT', 0, 50)) do
    local id = string.match(string.sub(member, #same + 2), '^0*(%d+)$') or ''
    local mark = mark_of(id)
    if mark then
      found[#found + 1] = id
      found[#found + 1] = is_open(mark) and 'open' or 'ended'
      found[#found + 1] = call('HGET', is_open(mark) and RECORDS or BRIEFS, id) or ''
    end
  end
  return found
end

local op = ops[ARGV[1]]
if not op then
  return redis.error_reply('ERR no such operation')
end
return op(unpack(ARGV, 4))
