UPDATE @orders SET version = LAST_INSERT_ID(version + 1), status = %s WHERE id = %s
