-- Removes a job that waits: one that nobody has begun, or that waits for its next try. Answers 1; 0 if it has ended or is not
-- there; 2 if a worker has it.
--
-- KEYS: the queue's wait, paused, prioritized, delayed, completed, failed and events, and the job.
-- ARGV: the job's id.
local mistake = mistaken({'list', 'list', 'zset', 'zset', 'zset', 'zset', 'stream', 'hash'})
if mistake then
    return mistake
end

local found = redis.call('LREM', KEYS[1], 0, ARGV[1])
    + redis.call('LREM', KEYS[2], 0, ARGV[1])
    + redis.call('ZREM', KEYS[3], ARGV[1])
    + redis.call('ZREM', KEYS[4], ARGV[1])
if found == 0 then
    local has_ended = redis.call('ZSCORE', KEYS[5], ARGV[1]) or redis.call('ZSCORE', KEYS[6], ARGV[1])
    if has_ended or redis.call('EXISTS', KEYS[8]) == 0 then
        return 0
    end
    return 2
end
redis.call('DEL', KEYS[8], KEYS[8] .. ':logs')
redis.call('XADD', KEYS[7], 'MAXLEN', '~', '10000', '*', 'event', 'removed', 'jobId', ARGV[1], 'prev', 'waiting')
return 1
