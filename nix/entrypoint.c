/*
 * The entrypoint of a configured kli: sets the declared variables, then becomes the program.
 *
 * It is compiled, and its words are data (`words.h`, written by entrypoint.nix), because a shell
 * script would read BASH_ENV and look programs up in PATH before anything is confined. On Linux it
 * is linked statically, so that LD_PRELOAD and its kin are nothing to it. It must not know what the
 * words mean.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "words.h"

static int refuse(const char *what)
{
	fprintf(stderr, "kli: cannot start `%s`: %s\n", what, strerror(errno));
	return 125;
}

/* The caller may hold a name twice, and setenv replaces only the first of them. No value: none is left. */
static int set(const char *name, const char *value)
{
	return unsetenv(name) != 0 || (value != NULL && setenv(name, value, 1) != 0);
}

/*
 * Puts a mark before the names of what the loader of the next program reads (ld.so(8)). The launcher
 * takes it off again, for the program that it confines: code that a caller's LD_PRELOAD names runs
 * inside, and not in the launcher.
 */
static int keep_from_loader(void)
{
	static const char mark[] = "KLI_LOADER_";
	for (char **one = environ; *one != NULL; one++) {
		if (strncmp(*one, "LD_", 3) != 0 && strncmp(*one, "GLIBC_TUNABLES=", 15) != 0)
			continue;
		char *marked = malloc(sizeof(mark) + strlen(*one));
		if (marked == NULL)
			return 1;
		sprintf(marked, "%s%s", mark, *one);
		*one = marked;
	}
	return 0;
}

/* An empty element of PATH means the current directory, so none may come into being here. */
static int prefix_path(void)
{
	const char *old = getenv("PATH");
	if (PATH_PREFIX[0] == '\0')
		return 0;
	if (old == NULL || old[0] == '\0')
		return set("PATH", PATH_PREFIX);

	char *joined = malloc(sizeof(PATH_PREFIX) + strlen(old) + 1);
	if (joined == NULL)
		return 1;
	sprintf(joined, "%s:%s", PATH_PREFIX, old);
	int failed = set("PATH", joined);
	free(joined);
	return failed;
}

int main(int argc, char **argv)
{
	size_t fixed = sizeof(words) / sizeof(words[0]);
	size_t given = argc > 1 ? (size_t)argc - 1 : 0;
	char **all = calloc(fixed + given + 1, sizeof(char *));
	if (all == NULL)
		return refuse(words[0]);

	for (size_t i = 0; i < fixed; i++)
		all[i] = (char *)words[i];
	for (size_t i = 0; i < given; i++)
		all[fixed + i] = argv[i + 1];

	/* What the program is told that it is called; its file is the first word all the same. */
	all[0] = (char *)CALLED;

	for (size_t i = 0; variables[i].name != NULL; i++)
		if (set(variables[i].name, variables[i].value))
			return refuse(words[0]);
	if (prefix_path() || (CONFINES && keep_from_loader()))
		return refuse(words[0]);

	execv(words[0], all);
	return refuse(words[0]);
}
