-- What comes before every script of ours: whether the first keys are of these kinds, if they are there at all. Answers the error
-- to end with. A script that fails in its middle is not undone: what can be known before is looked at before.
local function mistaken(kinds)
    for i, kind in ipairs(kinds) do
        local found = redis.call('TYPE', KEYS[i]).ok
        if found ~= 'none' and found ~= kind then
            return redis.error_reply('WRONGTYPE ' .. KEYS[i] .. ' is a ' .. found .. ', where BullMQ has a ' .. kind)
        end
    end
end

