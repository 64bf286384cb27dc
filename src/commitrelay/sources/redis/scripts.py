"""Scripts: what Redis does in one step: look whose the lock is, then act.

So a reader that was paused and has lost its lock takes nothing from the stream and acknowledges
nothing, whatever it believes.
"""

from __future__ import annotations

LOST = b"lost"

TAKE = """
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
"""

READ = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 'lost' end
return redis.call('XREADGROUP', 'GROUP', ARGV[2], ARGV[3], 'COUNT', ARGV[4],
                  'STREAMS', KEYS[2], ARGV[5])
"""

ACK = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 'lost' end
return redis.call('XACK', KEYS[2], ARGV[2], unpack(ARGV, 3))
"""

KEEP = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 'lost' end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
"""

RELEASE = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 'lost' end
return redis.call('DEL', KEYS[1])
"""

MEET = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
redis.call('PEXPIRE', KEYS[1], 10 * ARGV[2])
return redis.call('ZRANGE', KEYS[1], 0, -1)
"""
