-- punctual_enqueue: writes a task inside the caller's own transaction, from any language.
--
-- It refuses what the API refuses, with every bad field in one message that begins with the API's code. Commit makes the
-- task visible and wakes the nodes; rollback makes it never have been. It runs with the rights of its caller.

-- What is wrong with a payload, or null.
CREATE FUNCTION punctual_refuse_payload(payload text) RETURNS text LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    -- As jsonb: that is what refuses U+0000 and half surrogates.
    IF jsonb_path_exists(payload::jsonb, 'strict $.**{128} ? (@.type() == "array" || @.type() == "object")') THEN
        RETURN 'nested deeper than 128 levels';
    END IF;
    IF EXISTS (
        WITH RECURSIVE part (value, kind) AS (
            SELECT payload::json, json_typeof(payload::json)
            UNION ALL
            SELECT inner_part.value, json_typeof(inner_part.value)
            FROM part
            CROSS JOIN LATERAL (
                SELECT value FROM json_each(CASE kind WHEN 'object' THEN part.value ELSE '{}' END)
                UNION ALL
                SELECT value FROM json_array_elements(CASE kind WHEN 'array' THEN part.value ELSE '[]' END)
            ) AS inner_part
            WHERE kind IN ('object', 'array')
        )
        SELECT FROM part
        CROSS JOIN LATERAL (SELECT count(*) <> count(DISTINCT key) AS repeats FROM json_object_keys(value) AS key) AS keys
        WHERE kind = 'object' AND keys.repeats
    ) THEN
        RETURN 'a key stands twice in one object';
    END IF;
    RETURN NULL;
EXCEPTION
    WHEN untranslatable_character THEN RETURN 'the character U+0000 cannot be stored; remove it';
    WHEN statement_too_complex THEN RETURN 'nested deeper than 128 levels';
    WHEN data_exception THEN RETURN 'is not JSON: ' || sqlerrm;
END
$$;

-- Whether a zone can be named: an IANA name that this server knows, spelled exactly, or UTC.
CREATE FUNCTION punctual_knows_zone(timezone text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    -- Listing the server's zones reads hundreds of files, so each session keeps in mind what it has found.
    known text := coalesce(current_setting('punctual.known_zones', true), '');
BEGIN
    IF timezone = 'UTC' OR timezone = ANY (string_to_array(known, ' ')) THEN
        RETURN true;
    END IF;
    -- `posix/…` and `right/…` repeat the others; a name without a slash is an abbreviation or a legacy.
    IF timezone !~ '^[A-Za-z]\S*/\S+$' OR timezone ~ '^(posix|right)/'
        OR NOT EXISTS (SELECT FROM pg_timezone_names WHERE name = timezone)
    THEN
        RETURN false;
    END IF;
    PERFORM set_config('punctual.known_zones', concat_ws(' ', nullif(known, ''), timezone), false);
    RETURN true;
END
$$;

-- The retry policy that results from what is given and, for the rest, from `base`.
CREATE FUNCTION punctual_merge_retry(base jsonb, attempts integer, backoff jsonb) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
    merged jsonb := base -> 'backoff' || coalesce(backoff, '{}');
BEGIN
    -- A bound or a start that nobody named gives way to the one that was named.
    IF backoff ? 'delay' AND NOT backoff ? 'maxDelay' THEN
        merged := merged || jsonb_build_object('maxDelay',
            greatest((merged ->> 'maxDelay')::bigint, (merged ->> 'delay')::bigint));
    ELSIF backoff ? 'maxDelay' AND NOT backoff ? 'delay' THEN
        merged := merged || jsonb_build_object('delay',
            least((merged ->> 'maxDelay')::bigint, (merged ->> 'delay')::bigint));
    END IF;
    RETURN jsonb_build_object('attempts', coalesce(attempts, (base ->> 'attempts')::integer), 'backoff', merged);
END
$$;

-- What is wrong with a back-off, field by field.
CREATE FUNCTION punctual_refuse_backoff(backoff jsonb) RETURNS text[] LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
    refused text[] := '{}';
    field text;
    given jsonb;
BEGIN
    IF jsonb_typeof(backoff) <> 'object' THEN
        RETURN ARRAY['backoff: must be an object'];
    END IF;
    FOR field, given IN SELECT * FROM jsonb_each(backoff) LOOP
        IF field = 'type' THEN
            IF given NOT IN ('"fixed"', '"exponential"') THEN
                refused := refused || 'backoff.type: must be "fixed" or "exponential"'::text;
            END IF;
        ELSIF field IN ('delay', 'maxDelay') THEN
            IF NOT jsonb_path_exists(given, '$ ? (@ >= 0 && @ <= 31536000000)') OR given::text ~ '[^0-9]' THEN
                refused := refused
                    || format('backoff.%s: must be a whole number of ms from 0 to 31536000000 (a year)', field);
            END IF;
        ELSIF field = 'jitter' THEN
            -- A path looks into an array; a list of numbers is none.
            IF jsonb_typeof(given) <> 'number' OR NOT jsonb_path_exists(given, '$ ? (@ >= 0 && @ <= 1)') THEN
                refused := refused || 'backoff.jitter: must be 0 to 1'::text;
            END IF;
        ELSE
            refused := refused || format('backoff.%s: is unknown', left(field, 40));
        END IF;
    END LOOP;
    IF refused = '{}' AND (backoff ->> 'delay')::bigint > (backoff ->> 'maxDelay')::bigint THEN
        refused := ARRAY[format('backoff.maxDelay: must be at least delay (%s)', backoff ->> 'delay')];
    END IF;
    RETURN refused;
END
$$;

CREATE FUNCTION punctual_enqueue(
    topic             text,
    payload           text DEFAULT '{}',
    run_at            timestamptz DEFAULT NULL,
    timezone          text DEFAULT 'UTC',
    priority          integer DEFAULT 0,
    client_request_id text DEFAULT NULL,
    dedupe_key        text DEFAULT NULL,
    serial_key        text DEFAULT NULL,
    metadata          jsonb DEFAULT NULL,
    timeout_seconds   integer DEFAULT NULL,
    attempts          integer DEFAULT NULL,
    backoff           jsonb DEFAULT NULL
) RETURNS uuid LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
#variable_conflict use_column
<<given>>
DECLARE
    default_retry constant jsonb :=
        '{"attempts": 1, "backoff": {"type": "exponential", "delay": 5000, "maxDelay": 3600000, "jitter": 0.2}}';
    refused text[] := '{}';
    -- The codes of those bad fields that have one of their own.
    codes   text[] := '{}';
    bad     text;
    named   record;
    defined jsonb;
    retry   jsonb;
    micros  bigint := extract(epoch FROM clock_timestamp()) * 1000000;
    -- A version 7 id. The microseconds follow the milliseconds, so that one session's ids sort as they were made.
    id      uuid := lpad(to_hex(micros / 1000), 12, '0') || '7' || lpad(to_hex(micros % 1000 * 4096 / 1000), 3, '0')
        || right(replace(gen_random_uuid()::text, '-', ''), 16);
    living  uuid;
BEGIN
    payload := coalesce(payload, '{}');
    timezone := coalesce(timezone, 'UTC');
    priority := coalesce(priority, 0);

    IF topic IS NULL OR length(topic) NOT BETWEEN 1 AND 200 THEN
        refused := refused || format('topic: a topic has 1 to 200 characters, not %s', coalesce(length(topic), 0));
    ELSIF topic !~ '^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$' THEN
        refused := refused || format('topic: %s is not a topic: use letters, digits, `_` and `-`, in parts joined by dots, '
            'such as `signup.reminder`', to_json(topic));
    END IF;

    IF octet_length(payload) > 1048576 THEN
        codes := codes || 'TOO_LARGE'::text;
        refused := refused || format('payload: has %s bytes, at most 1048576 (1 MiB) are allowed', octet_length(payload));
    ELSE
        bad := punctual_refuse_payload(payload);
        IF bad IS NOT NULL THEN
            refused := refused || ('payload: ' || bad);
        END IF;
    END IF;

    -- What was the present when the transaction began is not the past: `run_at => now()` means now.
    IF run_at < transaction_timestamp() THEN
        codes := codes || 'RUN_AT_IN_PAST'::text;
        refused := refused || format('run_at: must be in the future; it is %s now',
            to_char(transaction_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'));
    ELSIF run_at >= '10000-01-01 00:00:00+00' THEN
        refused := refused || 'run_at: must be before the year 10000'::text;
    END IF;
    IF NOT punctual_knows_zone(timezone) THEN
        codes := codes || 'INVALID_TIMEZONE'::text;
        refused := refused || format('timezone: unknown time zone %s: use an IANA name of the form Area/Location, such as '
            'America/Mexico_City, or UTC', to_json(left(timezone, 60)));
    END IF;

    IF priority NOT BETWEEN -100 AND 100 THEN
        refused := refused || 'priority: must be -100 to 100'::text;
    END IF;
    IF timeout_seconds NOT BETWEEN 1 AND 2592000 THEN
        refused := refused || 'timeout_seconds: must be 1 to 2592000 (30 days)'::text;
    END IF;
    IF attempts NOT BETWEEN 1 AND 1000 THEN
        refused := refused || 'attempts: must be 1 to 1000'::text;
    END IF;
    IF backoff IS NOT NULL AND punctual_refuse_backoff(backoff) <> '{}' THEN
        refused := refused || punctual_refuse_backoff(backoff);
    END IF;
    FOR named IN
        SELECT * FROM (VALUES
            ('client_request_id', client_request_id), ('dedupe_key', dedupe_key), ('serial_key', serial_key)
        ) AS key (field, value)
        WHERE length(value) NOT BETWEEN 1 AND 200
    LOOP
        refused := refused || format('%s: must have 1 to 200 characters, not %s', named.field, length(named.value));
    END LOOP;
    IF jsonb_typeof(metadata) NOT IN ('object', 'null') THEN
        refused := refused || 'metadata: must be an object'::text;
    ELSIF jsonb_typeof(metadata) = 'object' THEN
        IF (SELECT count(*) FROM jsonb_object_keys(metadata)) > 50 THEN
            refused := refused || 'metadata: must have at most 50 entries'::text;
        END IF;
        FOR named IN SELECT * FROM jsonb_each(metadata) AS entry (key, value) LOOP
            bad := CASE
                WHEN jsonb_typeof(named.value) <> 'string' THEN 'must be text'
                WHEN named.key = '' THEN 'keys must not be empty'
                WHEN octet_length(named.key) + octet_length(named.value #>> '{}') > 1024 THEN 'must have at most 1 KiB'
            END;
            IF bad IS NOT NULL THEN
                refused := refused || format('metadata.%s: %s', left(named.key, 40), bad);
            END IF;
        END LOOP;
    END IF;

    IF refused <> '{}' THEN
        RAISE EXCEPTION '%: %',
            CASE
                WHEN 'TOO_LARGE' = ANY (codes) THEN 'TOO_LARGE'
                WHEN cardinality(codes) = cardinality(refused) AND codes[1] = ALL (codes) THEN codes[1]
                ELSE 'INVALID'
            END, array_to_string(refused, '; ')
            USING ERRCODE = CASE
                WHEN 'TOO_LARGE' = ANY (codes) THEN 'program_limit_exceeded'
                ELSE 'invalid_parameter_value'
            END;
    END IF;

    -- The topic's defaults: the longest match wins, and an exact name beats a prefix.
    SELECT t.definition::jsonb INTO defined
    FROM punctual_topics AS t
    WHERE t.name = punctual_enqueue.topic
        OR t.name LIKE '%.*' AND starts_with(punctual_enqueue.topic, left(t.name, -1))
    ORDER BY t.name LIKE '%.*', length(t.name) DESC
    LIMIT 1;
    retry := punctual_merge_retry(coalesce(nullif(defined -> 'retry', 'null'), default_retry), attempts, backoff);

    IF client_request_id IS NOT NULL THEN
        INSERT INTO punctual_client_requests (client_request_id, made, id)
        VALUES (punctual_enqueue.client_request_id, 'task', given.id)
        ON CONFLICT DO NOTHING;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'SCHEDULE_CLIENT_REQUEST_ID_IN_USE: the client_request_id % was used before',
                to_json(client_request_id)
                USING ERRCODE = 'unique_violation', TABLE = 'punctual_client_requests',
                    CONSTRAINT = 'punctual_client_requests_pkey';
        END IF;
    END IF;

    LOOP
        INSERT INTO punctual_tasks (
            id, topic, priority, run_at, first_run_at, timezone, payload, metadata, owner_id, tenant_id, correlation_id,
            client_request_id, dedupe_key, serial_key, timeout_seconds, retry, created_at
        )
        VALUES (
            given.id, punctual_enqueue.topic, punctual_enqueue.priority,
            coalesce(punctual_enqueue.run_at, statement_timestamp()),
            coalesce(punctual_enqueue.run_at, statement_timestamp()),
            punctual_enqueue.timezone, punctual_enqueue.payload,
            nullif(nullif(punctual_enqueue.metadata, '{}'), 'null')::text,
            punctual_enqueue.metadata ->> 'ownerId', punctual_enqueue.metadata ->> 'tenantId',
            punctual_enqueue.metadata ->> 'correlationId', punctual_enqueue.client_request_id,
            punctual_enqueue.dedupe_key, punctual_enqueue.serial_key,
            coalesce(punctual_enqueue.timeout_seconds, (defined ->> 'timeoutSeconds')::integer, 3600),
            nullif(given.retry, default_retry)::text, statement_timestamp()
        )
        ON CONFLICT (topic, dedupe_key) WHERE dedupe_key IS NOT NULL DO NOTHING;
        IF FOUND THEN
            PERFORM pg_notify('punctual_tasks', '');
            RETURN id;
        END IF;
        SELECT t.id INTO living
        FROM punctual_tasks AS t
        WHERE t.topic = punctual_enqueue.topic AND t.dedupe_key = punctual_enqueue.dedupe_key;
        IF FOUND THEN
            -- It made nothing, so it may be used again.
            DELETE FROM punctual_client_requests AS r
            WHERE r.client_request_id = punctual_enqueue.client_request_id AND r.id = given.id;
            RETURN living;
        END IF;
        -- The living one ended between the two statements: the key is free after all.
    END LOOP;
END
$$;

-- The same for payloads that are typed already; an untyped literal or parameter goes to the one above.
CREATE FUNCTION punctual_enqueue(
    topic text, payload jsonb, run_at timestamptz DEFAULT NULL, timezone text DEFAULT 'UTC', priority integer DEFAULT 0,
    client_request_id text DEFAULT NULL, dedupe_key text DEFAULT NULL, serial_key text DEFAULT NULL,
    metadata jsonb DEFAULT NULL, timeout_seconds integer DEFAULT NULL, attempts integer DEFAULT NULL,
    backoff jsonb DEFAULT NULL
) RETURNS uuid LANGUAGE sql SET search_path FROM CURRENT AS $$
    SELECT punctual_enqueue(
        topic, payload::text, run_at, timezone, priority, client_request_id, dedupe_key, serial_key, metadata,
        timeout_seconds, attempts, backoff)
$$;

CREATE FUNCTION punctual_enqueue(
    topic text, payload json, run_at timestamptz DEFAULT NULL, timezone text DEFAULT 'UTC', priority integer DEFAULT 0,
    client_request_id text DEFAULT NULL, dedupe_key text DEFAULT NULL, serial_key text DEFAULT NULL,
    metadata jsonb DEFAULT NULL, timeout_seconds integer DEFAULT NULL, attempts integer DEFAULT NULL,
    backoff jsonb DEFAULT NULL
) RETURNS uuid LANGUAGE sql SET search_path FROM CURRENT AS $$
    SELECT punctual_enqueue(
        topic, payload::text, run_at, timezone, priority, client_request_id, dedupe_key, serial_key, metadata,
        timeout_seconds, attempts, backoff)
$$;

COMMENT ON FUNCTION punctual_enqueue(
    text, text, timestamptz, text, integer, text, text, text, jsonb, integer, integer, jsonb
) IS 'Writes a task inside the caller''s transaction and answers its id, or that of the living task with its dedupe_key.';
