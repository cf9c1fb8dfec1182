-- Makes a job in a BullMQ queue, ready to run: wholly or not at all. Answers 1; 0 if there is a job of this id already, whatever
-- its state; -1 if it comes too late, and nobody waits for it any more.
--
-- KEYS: the queue's meta, wait, paused, active, marker and events, and the job.
-- ARGV: the job's id, name, data and options, the present instant, and until when by Redis's own clock it may be made, both in
-- milliseconds.
local clock = redis.call('TIME')
if clock[1] * 1000 + math.floor(clock[2] / 1000) > tonumber(ARGV[6]) then
    return -1
end

local mistake = mistaken({'hash', 'list', 'list', 'list', 'zset', 'stream', 'hash'})
if mistake then
    return mistake
end

local meta = redis.call('HMGET', KEYS[1], 'opts.maxLenEvents', 'paused', 'concurrency', 'version')
local cap = meta[1]
if not cap then
    cap = '10000'
    redis.call('HSET', KEYS[1], 'opts.maxLenEvents', cap)
end

if redis.call('EXISTS', KEYS[7]) == 1 then
    redis.call('XADD', KEYS[6], 'MAXLEN', '~', cap, '*', 'event', 'duplicated', 'jobId', ARGV[1])
    return 0
end

-- Releases up to 5 keep the jobs of a paused queue in a list of its own, which takes the place of `wait` when it goes on;
-- later ones leave them where they are. The lists show which of them paused it, the release only where both are empty.
local ready = KEYS[2]
if meta[2] then
    if redis.call('EXISTS', KEYS[3]) == 1 then
        ready = KEYS[3]
    elseif redis.call('EXISTS', KEYS[2]) == 0 then
        local major = meta[4] and string.match(meta[4], '^bullmq:(%d+)%.')
        if not major or tonumber(major) < 6 then
            ready = KEYS[3]
        end
    end
end

local function make()
    redis.call('HSET', KEYS[7], 'name', ARGV[2], 'data', ARGV[3], 'opts', ARGV[4], 'timestamp', ARGV[5], 'delay', '0', 'priority', '0')
    redis.call('XADD', KEYS[6], 'MAXLEN', '~', cap, '*', 'event', 'added', 'jobId', ARGV[1], 'name', ARGV[2])
    redis.call('LPUSH', ready, ARGV[1])
    -- Wakes a worker, unless none may take it now: the next one to finish does.
    local limit = tonumber(meta[3] or '')
    if not meta[2] and not (limit and redis.call('LLEN', KEYS[4]) >= limit) then
        redis.call('ZADD', KEYS[5], 0, '0')
    end
    redis.call('XADD', KEYS[6], 'MAXLEN', '~', cap, '*', 'event', 'waiting', 'jobId', ARGV[1])
end

-- What cannot be known before, such as a command that our user may not use, is taken back: a job that is half there would
-- be taken for one that was handed over.
local is_made, problem = pcall(make)
if not is_made then
    redis.pcall('LREM', ready, 1, ARGV[1])
    redis.pcall('DEL', KEYS[7])
    if type(problem) == 'table' then
        problem = problem.err
    end
    return redis.error_reply(tostring(problem))
end
return 1
