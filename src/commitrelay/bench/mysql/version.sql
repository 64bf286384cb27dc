SELECT concat(CASE WHEN version() LIKE '%%MariaDB%%' THEN 'MariaDB ' ELSE 'MySQL ' END,
              substring_index(version(), '-', 1));
